package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// A log that nobody reads fills a pipe, and whoever writes to a full pipe waits.
// It must not be the requests (security: "stdout blocked").
func TestNobodyReadsTheLog(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "it needs thousands of requests within seconds, and each takes longer")
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
	responses := bufio.NewReader(conn)
	for i := range n {
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\nUser-Agent: %s\r\n\r\n", path, path); err != nil {
			t.Errorf("request %d: %v", i, err)
			return
		}
		response, err := http.ReadResponse(responses, nil)
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

// All that a gateway logged has been written when it has ended, whichever way it was asked to end.
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

// Requests that follow one another on connections, and run at the same time on many, are forwarded
// and logged each with its own client, token, path and name: what the gateway knows of one lies in
// memory that serves another when its line is made.
func TestRequestsAreNotMixed(t *testing.T) {
	upstream := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.URL.Path, " ", r.Header.Get("X-Snowgate-Client"), " ", r.Header.Get("X-Snowgate-Token-Id"), " ", r.Header.Get("X-Request-Id"))
	}))
	defer upstream.Close()
	const callers, each = 8, 150
	var who [callers]gatewaytest.Credentials
	var list strings.Builder
	for i := range who {
		who[i] = gatewaytest.NewClient(fmt.Sprintf("client-%d", i), "read")
		list.WriteString(who[i].YAML)
	}
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients:\n" + list.String() +
		fmt.Sprintf("routes:\n  - {name: echo, path: /, upstreams: [%q], scopes: [read]}\n", upstream.URL)})

	var names [callers][each]string // that the gateway has given the requests
	var asking sync.WaitGroup
	for i, client := range who {
		token := g.Token(client)
		asking.Go(func() {
			transport := new(http.Transport) // which keeps its connection
			defer transport.CloseIdleConnections()
			for k := range each {
				request := g.Request(http.MethodGet, fmt.Sprintf("/%d/%d", i, k), nil)
				request.Header.Set("Authorization", "Bearer "+token)
				response, err := transport.RoundTrip(request)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				names[i][k] = response.Header.Get("X-Request-Id")
				if want := fmt.Sprintf("/%d/%d %s %s %s", i, k, client.ID, publicID(token), names[i][k]); string(body) != want || err != nil {
					t.Errorf("the service was told %q, %v, want %q", body, err, want)
				}
			}
		})
	}
	asking.Wait()

	var lines []map[string]any
	gatewaytest.Eventually(t, 10*time.Second, "a line of each request", func() bool {
		lines = slices.DeleteFunc(g.Lines("request"), func(line map[string]any) bool { return line["route"] != "echo" })
		return len(lines) >= callers*each
	})
	logged := make(map[string]string, len(lines))
	for _, line := range lines {
		logged[fmt.Sprint(line["path"])] = fmt.Sprint(line["request_id"], " ", line["client"], " ", line["status"])
	}
	if len(lines) != callers*each || len(logged) != callers*each {
		t.Errorf("%d lines of %d paths, want %d", len(lines), len(logged), callers*each)
	}
	for i, client := range who {
		for k, name := range names[i] {
			if got, want := logged[fmt.Sprintf("/%d/%d", i, k)], fmt.Sprint(name, " ", client.ID, " 200"); got != want {
				t.Errorf("/%d/%d is logged as %q, want %q", i, k, got, want)
			}
		}
	}
}
