package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// expecting is the head of a request whose client waits for 100 Continue before it sends ok.
const expecting = "POST /public HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"

// expectAndCount sends an expecting request, its body after the first 100 Continue, and returns how
// many 100s came before the final response.
func expectAndCount(t *testing.T, address string) (continued int) {
	t.Helper()
	c := dial(t, address)
	c.send(expecting)
	for {
		response, err := http.ReadResponse(c.Reader, &http.Request{Method: http.MethodPost})
		if err != nil {
			t.Fatalf("after %d × 100: %v", continued, err)
		}
		switch response.StatusCode {
		case http.StatusContinue:
			if len(response.Header) > 0 {
				t.Errorf("100 Continue has fields: %v", response.Header)
			}
			if continued++; continued == 1 {
				c.send("ok")
			}
		case http.StatusEarlyHints:
			if response.Header.Get("Link") != "</a.css>" {
				t.Fatalf("103 has the fields %v", response.Header)
			}
		case http.StatusOK:
			body, err := io.ReadAll(response.Body)
			if string(body) != "ok" || err != nil || response.Header.Get("Link") != "" {
				t.Errorf("final response %q, %v, %v", body, err, response.Header)
			}
			return continued
		default:
			t.Fatalf("status %d", response.StatusCode)
		}
	}
}

// interimService is a service that is asked once: it says first when the head has come, then a 103
// every few milliseconds until the body has, and then 200.
func interimService(t *testing.T, first string) *url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	serving.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			t.Error(err)
			return
		}
		come := make(chan struct{})
		serving.Go(func() { defer close(come); _, _ = io.Copy(io.Discard, request.Body) })
		_, _ = io.WriteString(conn, first)
		pace := time.NewTicker(20 * time.Millisecond) // 50 until the body is sent unasked
		defer pace.Stop()
		for {
			select {
			case <-come:
				_, _ = io.WriteString(conn, okResponse)
				return
			case <-pace.C:
				_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n")
			}
		}
	})
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}
}

// The 100 Continue that a client waits for and the interim responses of a service go out one
// after the other, and there is one 100, whoever says it.
func TestContinueBetweenInterimResponses(t *testing.T) {
	for name, first := range map[string]string{
		"the gateway says it": "",
		"the service says it": "HTTP/1.1 100 Continue\r\n\r\n",
		"and says it twice":   strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 2),
	} {
		for _, standard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/standard=%v", name, standard), func(t *testing.T) {
				t.Parallel()
				route := public(interimService(t, first))
				route.Standard = standard
				g := newGateway(t, gatewayOptions{}, route)
				if n := expectAndCount(t, g.address()); n != 1 {
					t.Errorf("%d × 100 Continue, want 1", n)
				}
			})
		}
	}
}
