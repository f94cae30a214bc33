package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

// foldingService responds with a header that has a folded line (RFC 9112 §5.2), which our transport
// refuses and that of net/http reads.
func foldingService(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4<<10))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
			_ = conn.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}

// TestTransportOfARoute: transport of a route, and SNOWGATE_TRANSPORT for those that have none.
func TestTransportOfARoute(t *testing.T) {
	service := foldingService(t)
	routes := "routes:\n"
	for name, key := range map[string]string{"default": "", "direct": ", transport: direct", "standard": ", transport: standard"} {
		routes += fmt.Sprintf("  - {name: %s, path: /%s, public: true, upstreams: [%q]%s}\n", name, name, service, key)
	}
	for _, test := range []struct {
		transport string
		want      map[string]int
	}{
		{"direct", map[string]int{"default": http.StatusBadGateway, "direct": http.StatusBadGateway, "standard": http.StatusOK}},
		{"standard", map[string]int{"default": http.StatusOK, "direct": http.StatusBadGateway, "standard": http.StatusOK}},
	} {
		g := gatewaytest.Start(t, gatewaytest.Options{Config: routes, Env: []string{"SNOWGATE_TRANSPORT=" + test.transport}})
		for name, want := range test.want {
			response, err := http.Get(g.URL + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("SNOWGATE_TRANSPORT=%s: /%s = %d, want %d", test.transport, name, response.StatusCode, want)
			}
		}
		// One series for the service, which two transports reach.
		if reasons := strings.Count(g.ScrapeText(), "\nsnowgate_replica_ejections_total{"); reasons != 6 {
			t.Errorf("SNOWGATE_TRANSPORT=%s: %d series of ejections, want one for each of 6 reasons", test.transport, reasons)
		}
		if series := strings.Count(g.ScrapeText(), "\nsnowgate_replica_healthy{"); series != 1 {
			t.Errorf("SNOWGATE_TRANSPORT=%s: %d series of the replica, want 1", test.transport, series)
		}
	}
}
