package clientconn_test

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"snowgate/internal/clientconn"
)

// noted is a connection that records the order of calls.
type noted struct {
	net.Conn // nil
	note     func(step string)
}

func (c noted) SetReadDeadline(time.Time) error  { return nil }
func (c noted) SetWriteDeadline(time.Time) error { return nil }

func (c noted) Write(p []byte) (int, error) {
	c.note("write")
	return len(p), nil
}

func (c noted) Read([]byte) (int, error) {
	c.note("read")
	return 0, io.EOF
}

// TestResponsesBeforeTheNextRequests: connections whose handlers are ready at the same time all
// respond before the first of them is read for its next request, which will have come by then.
// A body is read without ado. A busy machine may cut a turn of the scheduler short, but not
// every time.
func TestResponsesBeforeTheNextRequests(t *testing.T) {
	clientconn.NeedsHabits(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const conns, attempts = 10, 20
	for name, idle := range map[string]bool{"next requests": true, "bodies": false} {
		t.Run(name, func(t *testing.T) {
			together := false
			var steps []string
			for range attempts {
				steps = nil
				var mu sync.Mutex
				note := func(step string) {
					mu.Lock()
					defer mu.Unlock()
					steps = append(steps, step)
				}
				var waiters clientconn.Waiters
				var serving sync.WaitGroup
				for range conns {
					c := clientconn.Wrap(noted{note: note}, &waiters)
					serving.Go(func() {
						_, _ = c.Write([]byte("response"))
						if idle { // as net/http announces it
							clientconn.ConnState(c, http.StateIdle)
							_ = c.SetReadDeadline(time.Now().Add(time.Minute))
						}
						_, _ = c.Read(make([]byte, 4096))
					})
				}
				serving.Wait()
				together = together || !slices.Contains(steps[:conns], "read")
			}
			if together != idle {
				t.Errorf("all responses come first: %t, want %t; the last of %d attempts: %v", together, idle, attempts, steps)
			}
		})
	}
}
