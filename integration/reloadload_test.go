package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/internal/echo"
)

const (
	reloads       = 100
	reloadRate    = 500 // requests per second
	reloadSockets = 12
	// reloadServed is how many requests must have been served between two reloads.
	reloadServed = 10
)

// changing is a gateway whose configuration changes all the time, under load and
// with streams open.
type changing struct {
	*gatewaytest.Gateway
	t      *testing.T
	client gatewaytest.Credentials
	token  string
	a, b   *httptest.Server // two services of one kind
	ticks  *httptest.Server
	callee string
	grpc   *caller
	agent  *http.Client

	quit           chan struct{}
	running        sync.WaitGroup
	served, failed atomic.Int64
	why            atomic.Value // of a failure
	exchanged      []atomic.Int64
}

// config is the file of a version. The routes that streams were opened on come and
// go, upstreams come, go and change places, and a scope changes.
func (c *changing) config(version int) string {
	odd := version%2 == 1
	pick := func(even, other string) string {
		if odd {
			return other
		}
		return even
	}
	routes := []string{
		`{name: load, path: /load, upstreams: [` + pick(c.a.URL+", "+c.b.URL, c.b.URL+", "+c.a.URL) + `], scopes: [svc], balance: ` + pick("round_robin", "least_in_flight") + `}`,
		`{name: version, path: /version, upstreams: [` + c.a.URL + `], public: true, set_response_headers: {X-Version: "` + strconv.Itoa(version) + `"}}`,
		`{name: scoped, path: /scoped, upstreams: [` + c.a.URL + `], scopes: [` + pick("svc", "other") + `]}`,
		fmt.Sprintf(`{name: fresh-%d, path: /fresh/%d, upstreams: [%s], public: true}`, version, version, c.b.URL),
	}
	if !odd { // else the streams that stand have no route any more, nor their services an upstream
		routes = append(routes,
			`{name: live, path: /live, upstreams: [`+c.b.URL+`], scopes: [svc], websocket: true}`,
			`{name: ticks, path: /ticks, upstreams: [`+c.ticks.URL+`], scopes: [svc]}`,
			`{name: grpc, path: /grpc.testing.TestService, upstreams: ["`+c.callee+`"], scopes: [svc]}`)
	}
	return fileOf([]gatewaytest.Credentials{c.client}, routes...)
}

func newChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{t: t, client: gatewaytest.NewClient("worker", "svc"), quit: make(chan struct{}), exchanged: make([]atomic.Int64, reloadSockets+2)}
	start := func(handler http.Handler) *httptest.Server {
		server := cuttest.NewServer(handler)
		t.Cleanup(server.Close)
		return server
	}
	c.a, c.b = start(echo.Handler("a")), start(echo.Handler("b"))
	c.ticks = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for n := 0; r.Context().Err() == nil; n++ {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
			_ = http.NewResponseController(w).Flush()
			<-pace.C
		}
	}))
	service, url, _ := newCallee(t, false)
	c.callee = url
	c.Gateway = gatewaytest.Start(t, gatewaytest.Options{Config: c.config(0), Env: []string{"SNOWGATE_H2C=true", "SNOWGATE_LOG_LEVEL=info", "SNOWGATE_STORE_TIMEOUT=10s"}})
	c.token = c.Token(c.client)
	c.grpc = callerOf(t, c.Gateway, service, c.token)
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	c.agent = &http.Client{Transport: gatewaytest.Inspect(transport), Timeout: 20 * time.Second}
	return c
}

func (c *changing) fail(format string, arguments ...any) {
	c.failed.Add(1)
	c.why.CompareAndSwap(nil, fmt.Sprintf(format, arguments...))
}

// load sends requests at reloadRate until quit, in ten lanes.
func (c *changing) load() {
	const lanes = 10
	for range lanes {
		c.running.Go(func() {
			pace := time.NewTicker(lanes * time.Second / reloadRate)
			defer pace.Stop()
			for n := 0; ; n++ {
				select {
				case <-c.quit:
					return
				case <-pace.C:
				}
				if err := c.ask(n); err != nil {
					c.fail("%v", err)
				}
				c.served.Add(1)
			}
		})
	}
}

// ask sends one request; every fourth has a body.
func (c *changing) ask(n int) error {
	method, body := http.MethodGet, ""
	if n%4 == 3 {
		method, body = http.MethodPost, strings.Repeat("x", 2000)
	}
	request, err := http.NewRequestWithContext(context.Background(), method, c.URL+"/load/"+strconv.Itoa(n), strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := c.agent.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), fmt.Sprintf(`"body": %d`, len(body))) {
		return fmt.Errorf("%s = %d %.200s, %w", method, response.StatusCode, text, err)
	}
	return nil
}

// converse exchanges messages over a WebSocket until quit.
func (c *changing) converse(i int) {
	c.t.Helper()
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, c.URL+"/live/"+strconv.Itoa(i), &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + c.token}}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.running.Go(func() {
		defer func() { _ = conn.Close(websocket.StatusNormalClosure, "") }()
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-c.quit:
				return
			case <-pace.C:
			}
			want := fmt.Sprintf("message %d of socket %d", n, i)
			err := conn.Write(ctx, websocket.MessageText, []byte(want))
			if err == nil {
				var got []byte
				if _, got, err = conn.Read(ctx); err == nil && string(got) != want {
					err = fmt.Errorf("%q comes back as %q", want, got)
				}
			}
			if err != nil {
				c.fail("WebSocket %d, after %d messages: %v", i, n, err)
				return
			}
			c.exchanged[i].Add(1)
		}
	})
}

// follow reads a stream of events, of which none may be missing.
func (c *changing) follow(count *atomic.Int64) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/ticks", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		c.t.Fatalf("GET /ticks = %v, %v", response, err)
	}
	c.running.Go(func() { <-c.quit; cancel() })
	c.running.Go(func() {
		defer response.Body.Close()
		in := bufio.NewScanner(response.Body)
		for n := 0; in.Scan(); {
			if ctx.Err() != nil {
				return // the last line may be a part of one
			}
			data, found := strings.CutPrefix(in.Text(), "data: ")
			if found && data != strconv.Itoa(n) {
				c.fail("event %s comes in place of %d", data, n)
			}
			if found {
				n++
				count.Add(1)
			}
		}
		if ctx.Err() == nil {
			c.fail("the events end: %v", in.Err())
		}
	})
}

// call exchanges messages over a stream of gRPC.
func (c *changing) call(count *atomic.Int64) {
	c.t.Helper()
	stream := c.grpc.echoes(metadata.AppendToOutgoingContext(c.t.Context(), "authorization", "Bearer "+c.token), c.t)
	c.running.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-c.quit:
				_ = stream.CloseSend()
				if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
					c.fail("the gRPC stream ends with %v", err)
				}
				return
			case <-pace.C:
			}
			err := stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: grpcPayload(n)})
			if err == nil {
				_, err = stream.Recv()
			}
			if err != nil {
				c.fail("the gRPC stream breaks: %v", err)
				return
			}
			count.Add(1)
		}
	})
}

// put puts a version in force and returns when it is.
func (c *changing) put(version int) {
	c.t.Helper()
	next := filepath.Join(filepath.Dir(c.ConfigPath), "next.yaml")
	if err := os.WriteFile(next, []byte(c.config(version)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.ConfigPath); err != nil {
		c.t.Fatal(err)
	}
	c.Signal(syscall.SIGHUP)
	want := strconv.Itoa(version)
	gatewaytest.Eventually(c.t, 20*time.Second, "version "+want+" is in force", func() bool {
		return c.Get("/version", "").Header.Get("X-Version") == want
	})
}

// wantVersion looks at what the version changes.
func (c *changing) wantVersion(version int) {
	c.t.Helper()
	scoped := http.StatusOK
	if version%2 == 1 {
		scoped = http.StatusForbidden
	}
	for path, want := range map[string]int{"/scoped": scoped, "/fresh/" + strconv.Itoa(version): http.StatusOK, "/fresh/" + strconv.Itoa(version-1): http.StatusNotFound} {
		if got := c.Get(path, c.token); got.StatusCode != want {
			c.t.Errorf("version %d: %s = %d, want %d", version, path, got.StatusCode, want)
		}
	}
}

// TestReloadUnderLoad changes the routes a hundred times at 500 requests a second,
// with WebSockets, events and a gRPC stream open: not one request fails, and no
// stream ends, although the routes they were opened on are gone half of the time.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	c := newChanging(t)
	for i := range reloadSockets {
		c.converse(i)
	}
	c.follow(&c.exchanged[reloadSockets])
	c.call(&c.exchanged[reloadSockets+1])
	begin := time.Now()
	c.load()
	for version := 1; version <= reloads; version++ {
		c.put(version)
		if version%10 < 2 {
			c.wantVersion(version)
		}
		before := c.served.Load()
		gatewaytest.Eventually(t, 20*time.Second, "requests are served", func() bool { return c.served.Load() >= before+reloadServed })
	}
	took := time.Since(begin)
	after := make([]int64, len(c.exchanged))
	for i := range c.exchanged {
		after[i] = c.exchanged[i].Load()
	}
	gatewaytest.Eventually(t, 20*time.Second, "all streams go on after the last reload", func() bool {
		for i := range c.exchanged {
			if c.exchanged[i].Load() <= after[i] && c.failed.Load() == 0 {
				return false
			}
		}
		return true
	})
	close(c.quit)
	c.running.Wait()
	if c.failed.Load() > 0 {
		t.Errorf("%d failures in %d requests; the first: %v", c.failed.Load(), c.served.Load(), c.why.Load())
	}
	done := c.Metrics().Sum("snowgate_config_reloads_total", `result="ok"`)
	if done < reloads {
		t.Errorf("%v reloads by the metric, want %d", done, reloads)
	}
	t.Logf("%d reloads in %v, %d requests (%.0f/s); messages per stream: %v", reloads, took.Round(time.Millisecond), c.served.Load(), float64(c.served.Load())/took.Seconds(), after)
}
