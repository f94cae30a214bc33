package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// endingReads is the response writer of a connection whose reads fail when their
// deadline has passed.
type endingReads struct {
	http.ResponseWriter
	timer *time.Timer
	to    *io.PipeWriter
}

func (d *endingReads) SetReadDeadline(at time.Time) error {
	if d.timer != nil {
		d.timer.Stop()
	}
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() { _ = d.to.CloseWithError(context.DeadlineExceeded) })
	}
	return nil
}

// TestSilentStreamIsNotCut: a client that is answered may say nothing for as long
// as it likes, and one that is not may not.
func TestSilentStreamIsNotCut(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			from, to := io.Pipe()
			connection := &endingReads{to: to}
			b := &clientBody{
				source: from, control: http.NewResponseController(connection), idle: 30 * time.Second,
				patience: new(patiences).lend(time.Hour, new(waiter)),
			}
			defer b.patience.end()
			b.back = sync.NewCond(&b.mu)
			var saying sync.WaitGroup
			defer saying.Wait()
			saying.Go(func() {
				for range 3 {
					_, _ = to.Write([]byte("x"))
					time.Sleep(time.Hour) // the silence, in no time
				}
				_ = to.Close()
			})
			buffer := make([]byte, 1)
			if _, err := b.Read(buffer); err != nil {
				t.Fatal(err)
			}
			if answered {
				go func() {
					time.Sleep(time.Second) // while the next Read waits
					b.answering()
				}()
			}
			n := 1
			var err error
			for ; err == nil; n++ {
				_, err = b.Read(buffer)
			}
			if answered && (n != 4 || err != io.EOF) {
				t.Errorf("a client that is answered got through %d messages, and then %v", n-1, err)
			}
			if !answered && (n != 2 || err != context.DeadlineExceeded) {
				t.Errorf("a client that is not answered got through %d messages, and then %v, want its time to end", n-1, err)
			}
		})
	}
}

// TestChecksComeAndGo: a replica is asked once in an interval, and never again
// when it is not to be checked any more.
func TestChecksComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		f := new(fleet)
		defer f.close()
		u := f.newUpstream(target{scheme: "http", host: "192.0.2.1:80", protocol: http11})
		for _, r := range u.current(time.Now()) {
			r.transport = newTransport(r.address, "http", http11, func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go answerChecks(far, &asked)
				return near, nil
			})
		}
		check := HealthCheck{Path: "/livez", Interval: 5 * time.Second, Timeout: time.Second}
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
