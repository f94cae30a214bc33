package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

const (
	// patience is how long a test waits for what should come within a second or two.
	patience = 30 * time.Second
	// engineTimeout bounds one command of Docker.
	engineTimeout = 90 * time.Second
	// defaultImage is what docker-compose.yml names and `make compose-smoke` builds.
	defaultImage = "snowgate:local"
)

// root is the top of the source tree.
const root = "../.."

// project is the example of docker-compose.yml and docker-compose.labels.yml, with
// testdata/compose.yml laid over them, running: with a name, a port and a subnet of
// its own, so that several can run at a time.
type project struct {
	name    string
	dir     string   // a copy of what Compose reads
	image   string   // of the gateway
	command []string // how Compose is called
	environ []string // of it

	url    string  // of the gateway
	subnet string  // of the services, its first three octets
	client string  // secret of the example's client
	token  string  // of the example's client
	log    logbook // of the gateway
}

// newProject writes the files of a project. Nothing runs yet.
func newProject(dir, image string) (*project, error) {
	command, err := composeCommand()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	subnets, err := freeSubnets(1)
	if err != nil {
		return nil, err
	}
	p := &project{
		name: "snowgate-engine-" + strconv.Itoa(os.Getpid()), dir: dir, image: image, command: command,
		url: "http://127.0.0.1:" + port, subnet: subnets[0],
	}
	p.environ = append(os.Environ(), "COMPOSE_PROJECT_NAME="+p.name, "GATEWAY_PORT="+port,
		"SERVICES_SUBNET="+p.subnet, "SNOWGATE_TEST_IMAGE="+image)
	return p, p.write()
}

// composeCommand returns Docker's plugin if there is one, else the Compose that
// the checks build.
func composeCommand() ([]string, error) {
	if exec.Command("docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}, nil
	}
	out, err := exec.Command(filepath.Join(root, ".ci", "tool"), "compose").Output()
	if err != nil {
		return nil, fmt.Errorf("no Docker Compose: %w", err)
	}
	return []string{strings.TrimSpace(string(out))}, nil
}

// freePort returns a port of the loopback address that nobody listens on.
func freePort() (string, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

// freeSubnets returns the first three octets of so many networks that this machine
// is on none of, be it by a bridge of Docker's. Docker itself takes none of them for
// networks that name no subnet.
func freeSubnets(n int) ([]string, error) {
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	overlaps := func(subnet netip.Prefix) bool {
		return slices.ContainsFunc(taken, func(a net.Addr) bool {
			other, err := netip.ParsePrefix(a.String())
			return err == nil && subnet.Overlaps(other)
		})
	}
	var found []string
	for i := range 250 {
		// Two runs at a time begin at different places.
		octets := fmt.Sprintf("10.213.%d", (os.Getpid()*n+i)%250)
		if !overlaps(netip.MustParsePrefix(octets + ".0/24")) {
			found = append(found, octets)
		}
		if len(found) == n {
			return found, nil
		}
	}
	return nil, errors.New("no free subnet in 10.213.0.0/16")
}

// write copies what Compose reads, without secrets that may lie there.
func (p *project) write() error {
	for target, source := range map[string]string{
		"docker-compose.yml":                   filepath.Join(root, "docker-compose.yml"),
		"docker-compose.labels.yml":            filepath.Join(root, "docker-compose.labels.yml"),
		"engine.yml":                           filepath.Join("testdata", "compose.yml"),
		"deploy/compose/setup.sh":              filepath.Join(root, "deploy", "compose", "setup.sh"),
		"deploy/compose/snowgate.example.yaml": filepath.Join("testdata", "snowgate.yaml"),
		"deploy/compose/secrets/redis/.keep":   os.DevNull,
		"deploy/compose/secrets/gateway/.keep": os.DevNull,
		"deploy/compose/config/.keep":          os.DevNull,
	} {
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		target = filepath.Join(p.dir, target)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return err
		}
	}
	// Other users, inside the containers, read the files made below.
	return os.Chmod(p.dir, 0o755)
}

// up starts everything and gets a token.
func (p *project) up() error {
	if out, err := p.tryCompose("up", "-d", "--no-build", "--wait"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := p.followLog(); err != nil {
		return err
	}
	secret, err := os.ReadFile(filepath.Join(p.dir, "deploy/compose/secrets/example-client"))
	if err != nil {
		return err
	}
	p.client = strings.TrimSpace(string(secret))
	deadline := time.Now().Add(patience)
	for p.token == "" { // a new Redis gives no worker number out for its first seconds
		if p.token, err = p.newToken(); err != nil && time.Now().After(deadline) {
			return fmt.Errorf("no token: %w", err)
		}
		<-time.After(50 * time.Millisecond)
	}
	return nil
}

// down removes everything.
func (p *project) down() error {
	out, err := p.tryCompose("down", "-v", "--remove-orphans", "--timeout", "3")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func (p *project) newToken() (string, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, p.url+"/oauth2/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth("example", p.client)
	response, err := gatewaytest.Do(request)
	if err != nil {
		return "", err
	}
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(response.Body), &answer); err != nil || answer.AccessToken == "" {
		return "", fmt.Errorf("POST /oauth2/token = %d %s", response.StatusCode, response.Body)
	}
	return answer.AccessToken, nil
}

// get asks the gateway for path, with the token.
func (p *project) get(t *testing.T, path string) gatewaytest.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	response, err := gatewaytest.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// compose runs Compose on the project.
func (p *project) compose(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.tryCompose(args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

func (p *project) tryCompose(args ...string) (string, error) {
	files := []string{"-f", "docker-compose.yml", "-f", "docker-compose.labels.yml", "-f", "engine.yml"}
	args = slices.Concat(p.command[1:], files, args)
	return run(p, p.command[0], args...)
}

// scale has Compose run so many containers of a service.
func (p *project) scale(t *testing.T, service string, n int) {
	t.Helper()
	p.compose(t, "up", "-d", "--no-build", "--no-recreate", "--no-deps", "--scale", service+"="+strconv.Itoa(n), service)
}

// awaitLog waits until the gateway logs a line that holds all of words, behind
// what it had logged at mark, and returns it.
func (p *project) awaitLog(t *testing.T, mark int, words ...string) string {
	t.Helper()
	var found string
	eventually(t, patience, fmt.Sprintf("a line with %q in the log", words), func() bool {
		for line := range strings.Lines(p.log.String()[mark:]) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				found = line
				return true
			}
		}
		return false
	})
	return found
}

// followLog begins to keep what the gateway logs, until the gateway is removed.
func (p *project) followLog() error {
	follow := exec.Command("docker", "logs", "-f", p.name+"-gateway-1")
	follow.Stdout, follow.Stderr = &p.log, &p.log
	return follow.Start()
}

// logbook is a log that can be read while it is written.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// mark is where the log ends now.
func (l *logbook) mark() int { return len(l.String()) }

// docker runs a command of Docker and returns what it prints.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(nil, "docker", args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// run runs a program, in the directory and environment of p unless it is nil.
func run(p *project, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	if p != nil {
		command.Dir, command.Env = p.dir, p.environ
	}
	var out, faults bytes.Buffer
	command.Stdout, command.Stderr = &out, &faults
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, faults.String())
	}
	return out.String(), nil
}

// launch runs a container of the gateway's image beside those of Compose: an
// upstream called name, in the network of the services unless extra says another.
// labels hold name and value by turns; extra is for docker run. The container is
// removed when the test ends. It returns the id.
func (p *project) launch(t *testing.T, name string, labels []string, extra ...string) string {
	t.Helper()
	// The image has two ports, so one has to be named.
	args := []string{"run", "-d", "--no-healthcheck", "--name", p.name + "-" + name, "--label", "snowgate.port=8080"}
	for i := 0; i+1 < len(labels); i += 2 {
		args = append(args, "--label", labels[i]+"="+labels[i+1])
	}
	if !slices.ContainsFunc(extra, func(arg string) bool { return strings.HasPrefix(arg, "--network") }) {
		args = append(args, "--network="+p.network("services"))
	}
	args = append(append(args, extra...), p.image, "echo", "-name", name)
	id := docker(t, args...)
	t.Cleanup(func() { _, _ = run(nil, "docker", "rm", "-f", id) })
	return id
}

// network is Docker's name for a network of the project.
func (p *project) network(name string) string { return p.name + "_" + name }

// host is the name by which the container with that id answers.
func host(id string) string { return id[:12] }

// container is what the tests want to know of one.
type container struct {
	ID    string
	State struct {
		StartedAt, FinishedAt time.Time

		Health *struct {
			Status string
			Log    []struct{ End time.Time }
		}
	}
}

// containers returns the running containers of a service.
func (p *project) containers(t *testing.T, service string) []container {
	t.Helper()
	ids := docker(t, "ps", "-q", "--filter", "label=com.docker.compose.project="+p.name, "--filter", "label=com.docker.compose.service="+service)
	if ids == "" {
		return nil
	}
	return inspect(t, strings.Fields(ids)...)
}

// inspect returns what Docker knows of containers.
func inspect(t *testing.T, ids ...string) []container {
	t.Helper()
	var found []container
	if err := json.Unmarshal([]byte(docker(t, append([]string{"inspect"}, ids...)...)), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// only returns the one running container of a service.
func (p *project) only(t *testing.T, service string) container {
	t.Helper()
	all := p.containers(t, service)
	if len(all) != 1 {
		t.Fatalf("%s runs %d times, want once", service, len(all))
	}
	return all[0]
}

// eventually calls f until it returns true, and fails the test if that takes
// longer than within.
func eventually(t *testing.T, within time.Duration, what string, f func() bool) {
	t.Helper()
	gatewaytest.Eventually(t, within, what, f)
}

// dump writes the state of the project, and what its gateway has logged beside
// requests, for the reader of a failure.
func (p *project) dump(out io.Writer) {
	containers, _ := p.tryCompose("ps", "-a", "--format", "{{.Name}}\t{{.Status}}")
	fmt.Fprintf(out, "\n%s\n", containers)
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, `"message":"request"`) {
			fmt.Fprint(out, line)
		}
	}
}
