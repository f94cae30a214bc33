package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// client is a connection that is kept.
type client struct {
	net.Conn
	in *bufio.Reader
}

// connect opens a connection.
func connect(addr string) (client, error) {
	conn, err := net.DialTimeout("tcp", addr, 20*time.Second)
	return client{conn, bufio.NewReader(conn)}, err
}

// ask sends a GET and returns the status of its response.
func (c client) ask(path, token string) (int, error) {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n"+bearer(token)+"\r\n\r\n"); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// idleGateway starts a gateway with one protected service.
func idleGateway(t *testing.T) (g *gatewaytest.Gateway, token string) {
	t.Helper()
	service := gatewaytest.NewRecorder(t, "")
	worker := gatewaytest.NewClient("worker", "read")
	g = gatewaytest.Start(t, gatewaytest.Options{
		Env:    patientEnv,
		Config: "clients:\n" + worker.YAML + "routes: [{name: svc, path: /svc, upstreams: [\"" + service.URL + "\"], scopes: [read]}]\n",
	})
	return g, g.Token(worker)
}

// wantFiles skips the test if the system does not let it open so many files. Go
// has raised the soft limit to the hard one.
func wantFiles(t *testing.T, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < files {
		gatewaytest.Missing(t, fmt.Sprintf("a process may open %d files at most, and the test wants %d", limit.Max, files))
	}
}

// TestIdleConnections: 5,000 clients that have asked for something and keep their
// connections cost memory and nothing else; after 5 seconds less than the stack of a
// goroutine that has served a request. They are closed when the gateway stops, if not by
// idleTimeout, 2 minutes, before.
func TestIdleConnections(t *testing.T) {
	const idle = 5_000
	most := 64 << 10 * gatewaytest.MemoryScale() // bytes for each
	wantFiles(t, idle+1_000)
	g, token := idleGateway(t)
	before := g.Memory()
	clients := make([]client, idle)
	var opening sync.WaitGroup
	next := make(chan int)
	for range 50 {
		opening.Go(func() {
			for i := range next {
				c, err := connect(g.Addr)
				if err != nil {
					t.Error(err)
					continue
				}
				clients[i] = c
				if status, err := c.ask("/svc/x", token); status != http.StatusOK || err != nil {
					t.Errorf("client %d: %d, %v, want 200", i, status, err)
				}
			}
		})
	}
	for i := range clients {
		next <- i
	}
	close(next)
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if got := g.Get("/svc/x", token); got.StatusCode != http.StatusOK {
		t.Errorf("a new client = %d, want 200", got.StatusCode)
	}
	askSome := func() {
		for _, i := range []int{0, idle / 2, idle - 1} {
			if status, err := clients[i].ask("/svc/x", token); status != http.StatusOK || err != nil {
				t.Errorf("client %d after a while = %d, %v, want 200", i, status, err)
			}
		}
	}
	askSome()
	after := g.Memory()
	t.Logf("%d idle connections: %.1f KB of memory for each", idle, float64(after-before)/idle/1024)
	if after-before > idle*most {
		t.Errorf("memory grew from %d to %d MB, want %d KB for each connection at most", before>>20, after>>20, most>>10)
	}
	stacks := func() int64 { return int64(g.Metrics()["go_memstats_stack_inuse_bytes"]) }
	least := int64(8 << 10) // of who has served; the race detector takes about twice as much
	if raceDetector {
		least *= 2
	}
	awake := stacks()
	gatewaytest.Eventually(t, 60*time.Second, "the connections go to rest", func() bool { return stacks() < idle*least*3/4 })
	t.Logf("stacks at first %.1f KB, at rest %.1f KB for each", float64(awake)/idle/1024, float64(stacks())/idle/1024)
	askSome()
	g.Signal(syscall.SIGTERM)
	if code := g.Wait(); code != 0 {
		t.Errorf("the gateway ends with %d, want 0", code)
	}
	for i, c := range clients {
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.in.ReadByte(); err == nil || os.IsTimeout(err) {
			t.Errorf("connection %d: %v, want it closed", i, err)
		}
		_ = c.Close()
	}
}

// TestFilesExhausted: while the gateway can open nothing more, those who are
// connected get verdicts, which are never wrong; and when it can again, it serves
// everybody without a restart.
func TestFilesExhausted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED, NOT TESTED: the limits of another process can be set on Linux only")
	}
	prlimit := gatewaytest.Require(t, "prlimit", "util-linux")
	g, token := idleGateway(t)
	regular, err := connect(g.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = regular.Close() })
	if status, err := regular.ask("/svc/x", token); status != http.StatusOK {
		t.Fatalf("before: %d, %v", status, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.PID()))
	if err != nil {
		t.Fatal(err)
	}
	limit := strconv.Itoa(len(files) + 20)
	if out, err := exec.CommandContext(t.Context(), prlimit, "--pid", strconv.Itoa(g.PID()), "--nofile="+limit+":").CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v %s", err, out)
	}
	var crowd []client
	for range 200 { // the kernel takes them, whoever accepts
		c, err := connect(g.Addr)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	gatewaytest.Eventually(t, 20*time.Second, "the files run out", func() bool {
		return len(g.Lines("http: Accept error: accept tcp "+g.ListenAddr+": accept4: too many open files; retrying in 1s")) > 0
	})
	for range 20 {
		if status, err := regular.ask("/svc/x", token); err != nil || status != http.StatusOK && status != http.StatusBadGateway && status != http.StatusServiceUnavailable {
			t.Errorf("while there are no files: %d, %v, want 200, or 502 or 503", status, err)
		}
		if status, err := regular.ask("/svc/x", token[:69]+"~"); err != nil || status != http.StatusUnauthorized && status != http.StatusBadRequest {
			t.Errorf("while there are no files, without a good token: %d, %v, want 401", status, err)
		}
	}
	for _, c := range crowd {
		_ = c.Close()
	}
	gatewaytest.Eventually(t, 20*time.Second, "new clients are served again", func() bool {
		response, err := gatewaytest.Do(g.Request(http.MethodGet, "/readyz", nil))
		return err == nil && response.StatusCode == http.StatusOK
	})
	took := g.WaitServed(20*time.Second, "the service is reached again", func() gatewaytest.Response { return g.Get("/svc/x", token) })
	t.Logf("served %v after the files were there again", took)
}
