package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/proxy/route"
	"snowgate/proxy/transport"
)

// TestChecksComeAndGo: a replica is asked once in an interval, and never again
// when it is not to be checked any more.
func TestChecksComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		f := new(Set)
		defer f.Close()
		u := f.newUpstream(route.Target{Destination: transport.Destination{Scheme: "http", Host: "192.0.2.1:80", Protocol: transport.HTTP11}})
		for _, r := range u.current(time.Now()) {
			r.Transport = transport.New(r.address, "http", transport.HTTP11, func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go answerChecks(far, &asked)
				return near, nil
			})
		}
		check := route.HealthCheck{Path: "/livez", Interval: 5 * time.Second, Timeout: time.Second}
		wantAsked := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			if got := asked.Load(); got != want {
				t.Errorf("%s the replica was asked %d times, want %d", when, got, want)
			}
		}
		u.setCheck(&check)
		wantAsked("at once", 1)
		time.Sleep(12 * time.Second)
		wantAsked("after two intervals", 3)
		u.setCheck(&check)
		wantAsked("after a reload that changes nothing", 3)
		check.Interval = 7 * time.Second
		u.setCheck(&check)
		time.Sleep(8 * time.Second)
		wantAsked("after 8 s in another interval", 5)
		u.setCheck(nil)
		time.Sleep(time.Hour)
		wantAsked("an hour after the end of the checks", 5)
	})
}

// answerChecks answers whatever is asked on a connection with 200.
func answerChecks(conn net.Conn, asked *atomic.Int64) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		asked.Add(1)
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return
		}
	}
}
