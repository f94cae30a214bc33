// Package gatewaytest runs the real gateway binary for tests: it builds it once,
// starts it on free ports of the loopback address, talks to it over real
// sockets, and checks at the end of each test that no token and no secret got
// into its log, its metrics, its Redis or a refusal.
package gatewaytest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/integration/cuttest"
)

// patience is how long a test waits for something that should come at once.
const patience = 20 * time.Second

// buildDir is where the binary is, once it has been built.
var buildDir string

// Run runs the tests of a package, with their default clients searched for secrets, and removes what
// Binary left. It is for
// TestMain and returns the exit code.
func Run(m *testing.M) (code int) {
	http.DefaultTransport = Inspect(http.DefaultTransport)
	defer func() {
		for _, find := range remembered.take() { // after the last gateway
			fmt.Fprintln(os.Stderr, find)
			code = max(code, 1)
		}
	}()
	defer func() {
		if buildDir != "" {
			_ = os.RemoveAll(buildDir)
		}
	}()
	return m.Run()
}

// makeBuildDir makes the directory of all binaries.
var makeBuildDir = sync.OnceValue(func() (err error) {
	buildDir, err = os.MkdirTemp("", "snowgate-test-")
	return err
})

// Each binary is built once.
var (
	build      = sync.OnceValues(func() (string, error) { return compile("snowgate") })
	buildClock = sync.OnceValues(func() (string, error) { return compile("snowgate-clock", "-tags=clocktest") })
)

// compile builds the gateway under a name.
func compile(name string, flags ...string) (path string, err error) {
	if err := makeBuildDir(); err != nil {
		return "", err
	}
	path = filepath.Join(buildDir, name)
	args := append([]string{"build", "-o", path, "-ldflags=-X snowgate/tokens/redisstore/embedded.testPassword=" + embeddedPassword}, flags...)
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "snowgate")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// Binary returns the path of the gateway, built with the race detector if the
// tests are.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Options says how a gateway is started.
type Options struct {
	// Config is the content of the configuration file.
	Config string
	// Env holds further variables, NAME=value with the whole name. They win over
	// those that Start sets.
	Env []string
	// Binary is the program to start, see [Previous]. Default: the one under test.
	Binary string
	// HostClock, if given, is the clock of the gateway's host. The gateway is a build of its own
	// then, and goes by that clock only with SNOWGATE_ID_CLOCK=host in Env.
	HostClock *HostClock
	// NotReady makes Start return as soon as the listeners are open.
	NotReady bool
}

// Gateway is a running gateway process.
type Gateway struct {
	// URL and AdminURL are the base URLs of the listeners.
	URL, AdminURL string
	// Addr is host:port of the public listener, or of what cuts the bytes on the way to it.
	Addr string
	// ListenAddr is host:port of the public listener itself.
	ListenAddr string
	// ConfigPath is the file it was given; write to it to have it reloaded.
	ConfigPath string

	t       testing.TB
	cmd     *exec.Cmd
	exited  chan struct{}
	exit    error
	mu      sync.Mutex
	log     bytes.Buffer
	arrived *sync.Cond // a line of the log
	ended   bool
	reading sync.Mutex // held while nobody shall read the log
}

// Start starts a gateway with an embedded Redis, worker number 1 and no drain
// time, unless o.Env says otherwise. It is stopped when the test ends.
func Start(t testing.TB, o Options) *Gateway {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snowgate.yaml")
	if err := os.WriteFile(path, []byte(o.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &Gateway{t: t, ConfigPath: path, exited: make(chan struct{})}
	g.arrived = sync.NewCond(&g.mu)
	if o.Binary == "" {
		o.Binary = o.HostClock.binary(t)
	}
	g.cmd = exec.Command(o.Binary)
	g.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=10", // by default the race detector waits for a second at the end
		"SNOWGATE_LISTEN=127.0.0.1:0",
		"SNOWGATE_ADMIN_LISTEN=127.0.0.1:0",
		"SNOWGATE_CONFIG=" + path,
		"SNOWGATE_WORKER_ID=1",
		"SNOWGATE_DRAIN=0s",
		"SNOWGATE_LOG_LEVEL=debug",
		// Tests fail on purpose, and all from one address.
		"SNOWGATE_FAILED_AUTH_RATE=off",
		"SNOWGATE_FAILED_AUTH_ADDRESS_RATE=off",
		"SNOWGATE_UNKNOWN_TOKEN_RATE=off",
	}, append(o.HostClock.env(), o.Env...)...)
	if transport := os.Getenv("SNOWGATE_TEST_TRANSPORT"); transport != "" {
		g.cmd.Env = append([]string{"SNOWGATE_TRANSPORT=" + transport}, g.cmd.Env...) // the whole suite by another transport
	}
	remembered.learnEnv(g.cmd.Env)
	g.run()
	listen := g.WaitLog("snowgate starts")
	g.ListenAddr = listen["listen"].(string)
	g.Addr = g.ListenAddr
	if cuttest.Current() != cuttest.Whole {
		g.Addr = cuttest.Relay(t, g.Addr)
	}
	g.URL = "http://" + g.Addr
	if admin, ok := listen["admin_listen"].(string); ok {
		g.AdminURL = "http://" + admin
	}
	if !o.NotReady {
		g.WaitLog("ready: tokens are checked and issued")
	}
	return g
}

// run starts the process and reads its log.
func (g *Gateway) run() {
	g.t.Helper()
	stderr, err := g.cmd.StderrPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	go g.readLog(stderr)
	g.t.Cleanup(g.finish)
}

func (g *Gateway) readLog(stderr io.Reader) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadBytes('\n')
		g.reading.Lock()
		g.reading.Unlock() //nolint:staticcheck // all it does is to wait
		g.mu.Lock()
		g.log.Write(line)
		g.ended = err != nil
		g.arrived.Broadcast()
		g.mu.Unlock()
		if err != nil {
			break
		}
	}
	g.exit = g.cmd.Wait()
	close(g.exited)
}

// finish stops the process. No secret that a test has made or got may be in its log, its metrics,
// its Redis or a refusal.
func (g *Gateway) finish() {
	finds := g.sweep()
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.exited:
	case <-time.After(patience):
		_ = g.cmd.Process.Kill()
		<-g.exited
		g.t.Errorf("the gateway did not stop within %v", patience)
	}
	log := g.Log()
	if find := remembered.search("the log", log); find != "" {
		finds = append(finds, find)
	} else if leak := Leak(log); leak != "" {
		finds = append(finds, fmt.Sprintf("the log holds a token or secret: %.12s…", leak))
	}
	for _, find := range append(finds, remembered.take()...) {
		g.t.Errorf("%s", find)
	}
	if strings.Contains(log, "DATA RACE") || strings.Contains(log, "\npanic: ") || strings.Contains(log, "fatal error: ") {
		g.t.Errorf("the gateway broke:\n%s", log)
	}
	if g.t.Failed() {
		g.t.Logf("log of the gateway:\n%s", log)
	}
}

// leaks matches the secret part of a token, and a client secret.
var leaks = regexp.MustCompile(`sgt_[0-9A-Za-z]{11}_[0-9A-Za-z]{20,}|sgs_[0-9A-Za-z]{20,}`)

// Leak returns the first token or client secret in text, empty if there is none.
func Leak(text string) string { return leaks.FindString(text) }

// HoldLog makes nobody read what the gateway logs, as when a collector of logs
// hangs, until release is called.
func (g *Gateway) HoldLog() (release func()) {
	g.reading.Lock()
	return sync.OnceFunc(g.reading.Unlock)
}

// Log returns everything the gateway has logged.
func (g *Gateway) Log() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

// WaitLog returns the first line of the log with that message, waiting for it. It
// looks at each line once: a log may be long, and grow while it waits.
func (g *Gateway) WaitLog(message string) map[string]any {
	g.t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		late = true
		g.arrived.Broadcast()
	})
	defer timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for seen := 0; ; {
		for line := range bytes.Lines(g.log.Bytes()[seen:]) {
			seen += len(line)
			var fields map[string]any
			if json.Unmarshal(line, &fields) == nil && fields["message"] == message {
				return fields
			}
		}
		if g.ended || late {
			g.t.Fatalf("no line %q in the log:\n%s", message, g.log.String())
		}
		g.arrived.Wait()
	}
}

// Signal sends a signal to the process.
func (g *Gateway) Signal(sig os.Signal) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(sig); err != nil {
		g.t.Fatal(err)
	}
}

// Wait waits for the process to end and returns its exit code.
func (g *Gateway) Wait() int {
	g.t.Helper()
	select {
	case <-g.exited:
	case <-time.After(2 * patience):
		g.t.Fatal("the gateway does not end")
	}
	return g.cmd.ProcessState.ExitCode()
}

// Credentials are a client and its secret.
type Credentials struct {
	ID, Secret string
	YAML       string // the element of the clients list
}

// NewClient makes a client with the given scopes. extra is further YAML, such as
// "introspect: true".
func NewClient(id string, scopes string, extra ...string) Credentials {
	secret, digest := clients.NewSecret()
	remembered.addClient(id, secret.Reveal())
	text := fmt.Sprintf("  - id: %s\n    secrets: [{id: s1, sha256: %x}]\n    scopes: [%s]\n", id, digest, strings.ReplaceAll(scopes, " ", ", "))
	for _, line := range extra {
		text += "    " + line + "\n"
	}
	return Credentials{id, secret.Reveal(), text}
}

// Token gets a token for c; form holds further parameters.
func (g *Gateway) Token(c Credentials, form ...string) string {
	g.t.Helper()
	status, body := g.Post("/oauth2/token", c, append([]string{"grant_type", "client_credentials"}, form...)...)
	var response struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(body), &response); status != http.StatusOK || err != nil {
		g.t.Fatalf("POST /oauth2/token = %d %s", status, body)
	}
	return response.AccessToken
}

// Post sends a form, given as names and values, with Basic credentials.
func (g *Gateway) Post(path string, c Credentials, form ...string) (status int, body string) {
	g.t.Helper()
	values := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		values.Add(form[i], form[i+1])
	}
	request := g.Request(http.MethodPost, path, strings.NewReader(values.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(c.ID, c.Secret)
	response := g.Do(request)
	return response.StatusCode, response.Body
}

// Get asks for path with a bearer token, or without any if token is empty.
func (g *Gateway) Get(path, token string) Response {
	g.t.Helper()
	request := g.Request(http.MethodGet, path, nil)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return g.Do(request)
}

// Request makes a request to the public listener.
func (g *Gateway) Request(method, path string, body io.Reader) *http.Request {
	g.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, g.URL+path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	return request
}

// Response is a response that was read to its end.
type Response struct {
	StatusCode int
	Header     http.Header
	Body       string
	Duration   time.Duration // from sending the request to the end of the response
}

// Do sends a request on a connection of its own and reads the whole response.
func (g *Gateway) Do(request *http.Request) Response {
	g.t.Helper()
	response, err := Do(request)
	if err != nil {
		g.t.Fatal(err)
	}
	return response
}

// Do is [Gateway.Do] for code that expects errors.
func Do(request *http.Request) (Response, error) {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	begin := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Response{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	remembered.inspect(response.StatusCode, response.Header, string(body))
	return Response{response.StatusCode, response.Header, string(body), time.Since(begin)}, err
}

// Eventually calls f until it returns true, and fails the test if that takes
// longer than within.
func Eventually(t testing.TB, within time.Duration, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, within)
		}
		<-time.After(5 * time.Millisecond)
	}
}
