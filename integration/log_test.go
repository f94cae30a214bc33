package integration_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// A log that nobody reads fills a pipe, and whoever writes to a full pipe waits.
// It must not be the requests (security: "stdout blocked").
func TestNobodyReadsTheLog(t *testing.T) {
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients: []\n", Env: []string{"SNOWGATE_LOG_LEVEL=info"}})
	release := g.HoldLog()
	defer release()
	// More than the pipe, and what the gateway keeps of lines, can hold.
	const connections, each, lines = 4, 1250, 5 << 20
	path := "/" + strings.Repeat("x", lines/connections/each)
	var asking sync.WaitGroup
	for range connections {
		asking.Go(func() { askOften(t, g.Addr, path, each) })
	}
	asking.Wait()
	gatewaytest.Eventually(t, 10*time.Second, "the metric counts lost lines", func() bool {
		return g.Metrics().Sum("snowgate_log_lines_lost_total") > 0
	})
	release()
	told := g.WaitLog("log lines were lost here: they were not read as fast as they were written")
	if lost, ok := told["lost"].(float64); !ok || lost < 1 {
		t.Errorf("the log tells of %v lost lines", told["lost"])
	}
	// From then on it is complete again.
	response, err := http.Get(g.URL + "/after")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	gatewaytest.Eventually(t, 10*time.Second, "the line of the next request", func() bool {
		return strings.Contains(g.Log(), response.Header.Get("X-Request-Id"))
	})
}

// askOften asks for path n times on one connection, and expects 404.
func askOften(t *testing.T, address, path string, n int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	answers := bufio.NewReader(conn)
	for i := range n {
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\nUser-Agent: %s\r\n\r\n", path, path); err != nil {
			t.Errorf("request %d: %v", i, err)
			return
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Errorf("answer %d: %v", i, err)
			return
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("answer %d: %s", i, response.Status)
			return
		}
	}
}

// What a gateway logged is there when it has ended, whichever way it was asked to.
func TestLogIsWholeAtTheEnd(t *testing.T) {
	for name, signals := range map[string]int{"orderly": 1, "at once": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients: []\n", Env: []string{"SNOWGATE_DRAIN=20s"}[:signals-1]})
			const requests = 20
			for i := range requests {
				response, err := http.Get(fmt.Sprintf("%s/request-%d", g.URL, i))
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
			g.Signal(terminate)
			if signals > 1 {
				g.WaitLog("snowgate stops: it still accepts requests") // or the two become one
				g.Signal(terminate)
			}
			g.Wait()
			for i := range requests - 1 { // the last one may not have ended
				if n := strings.Count(g.Log(), fmt.Sprintf(`"path":"/request-%d"`, i)); n != 1 {
					t.Errorf("%d lines of request %d, want 1", n, i)
				}
			}
		})
	}
}
