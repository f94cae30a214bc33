package cuttest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Relay passes on connections to target, host:port, and cuts what goes through in both directions,
// in the mode of the process. It returns the address to connect to. It ends when the test ends.
func Relay(t testing.TB, target string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{target: target, mode: Current(), open: make(map[*net.TCPConn]bool)}
	r.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.serve(conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.end()
		r.running.Wait()
	})
	return listener.Addr().String()
}

type relay struct {
	target  string
	mode    Mode
	running sync.WaitGroup

	mu    sync.Mutex
	ended bool
	open  map[*net.TCPConn]bool
}

// end closes all connections.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for conn := range r.open {
		_ = conn.Close()
	}
}

// own notes conns, which end closes.
func (r *relay) own(conns ...*net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range conns {
		r.open[conn] = true
		if r.ended {
			_ = conn.Close()
		}
	}
}

func (r *relay) disown(conns ...*net.TCPConn) {
	for _, conn := range conns {
		awaitDelivery(conn)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(r.open, conn)
	}
}

func (r *relay) serve(near *net.TCPConn) {
	r.own(near)
	dialed, err := net.Dial("tcp", r.target)
	if err != nil {
		_ = near.SetLinger(0)
		r.disown(near)
		return
	}
	far := dialed.(*net.TCPConn)
	r.own(far)
	defer r.disown(near, far)
	var both sync.WaitGroup
	both.Go(func() { r.pass(far, near) })
	both.Go(func() { r.pass(near, far) })
	both.Wait()
}

// pass sends on what comes, its end and a reset.
func (r *relay) pass(to, from *net.TCPConn) {
	_, err := io.CopyBuffer(struct{ io.Writer }{r.mode.Writes(to)}, struct{ io.Reader }{from}, make([]byte, 64<<10))
	var failed *net.OpError
	switch {
	case err == nil:
		_ = to.CloseWrite()
	case errors.As(err, &failed) && failed.Op == "write":
		// The sender learns of the reset when there is nothing more to read.
		_ = from.CloseRead()
		_ = from.SetLinger(0)
	default:
		awaitDelivery(to)
		_ = to.SetLinger(0)
		_ = to.Close()
	}
}
