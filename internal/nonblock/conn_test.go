//go:build unix

package nonblock_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"snowgate/internal/nonblock"
)

// sockets returns both ends of a TCP connection, unwrapped.
func sockets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// TestLikeThePlainConnection makes the same calls on a plain connection and on a wrapped one. The
// results must be equal.
func TestLikeThePlainConnection(t *testing.T) {
	soon := func() time.Time { return time.Now().Add(20 * time.Millisecond) }
	read := func(c net.Conn, size int) (int, error) { return c.Read(make([]byte, size)) }
	tests := map[string]func(c, peer net.Conn) (int, error){
		"data": func(c, peer net.Conn) (int, error) {
			_, _ = peer.Write([]byte("hello"))
			return read(c, 10)
		},
		"data that comes later": func(c, peer net.Conn) (int, error) {
			time.AfterFunc(20*time.Millisecond, func() { _, _ = peer.Write([]byte("hello")) })
			return read(c, 10)
		},
		"less than there is": func(c, peer net.Conn) (int, error) {
			_, _ = peer.Write([]byte("hello"))
			return read(c, 3)
		},
		"nothing is asked for": func(c, _ net.Conn) (int, error) { return read(c, 0) },
		"nothing is written":   func(c, _ net.Conn) (int, error) { return c.Write(nil) },
		"the end":              func(c, peer net.Conn) (int, error) { _ = peer.Close(); return read(c, 10) },
		"a read: closed":       func(c, _ net.Conn) (int, error) { _ = c.Close(); return read(c, 10) },
		"a write: closed":      func(c, _ net.Conn) (int, error) { _ = c.Close(); return c.Write([]byte("x")) },
		"a read: closed during it": func(c, _ net.Conn) (int, error) {
			time.AfterFunc(20*time.Millisecond, func() { _ = c.Close() })
			return read(c, 10)
		},
		"a read: the deadline":         func(c, _ net.Conn) (int, error) { _ = c.SetReadDeadline(soon()); return read(c, 10) },
		"a read: the deadline is over": func(c, _ net.Conn) (int, error) { _ = c.SetReadDeadline(time.Unix(1, 0)); return read(c, 10) },
		"a read: interrupted": func(c, _ net.Conn) (int, error) {
			time.AfterFunc(20*time.Millisecond, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
			return read(c, 10)
		},
		"a read: reset": func(c, peer net.Conn) (int, error) {
			_ = peer.(*net.TCPConn).SetLinger(0)
			_ = peer.Close()
			return read(c, 10)
		},
		"a write: reset": func(c, peer net.Conn) (int, error) {
			_ = peer.(*net.TCPConn).SetLinger(0)
			_ = peer.Close()
			_, _ = read(c, 10)
			return c.Write([]byte("x"))
		},
		"a write: the direction is closed": func(c, _ net.Conn) (int, error) {
			if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				return -1, err
			}
			return c.Write([]byte("x"))
		},
		"a write: the deadline is over": func(c, _ net.Conn) (int, error) {
			_ = c.SetWriteDeadline(time.Unix(1, 0))
			return c.Write([]byte("x"))
		},
		"writes: nobody takes them": func(c, _ net.Conn) (int, error) {
			for {
				_ = c.SetWriteDeadline(soon())
				if _, err := c.Write(make([]byte, nonblock.Most)); err != nil {
					return 0, err
				}
			}
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			near, far := sockets(t)
			want, wantErr := do(near, far)
			near, far = sockets(t)
			got, err := do(nonblock.Wrap(near), far)
			if got != want || explained(err) != explained(wantErr) {
				t.Errorf("%d, %q, want %d, %q", got, explained(err), want, explained(wantErr))
			}
			for _, kind := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE} {
				if errors.Is(err, kind) != errors.Is(wantErr, kind) {
					t.Errorf("the error is %v: %v, want %v", kind, !errors.Is(wantErr, kind), errors.Is(wantErr, kind))
				}
			}
		})
	}
}

// explained returns the text of err without the addresses.
func explained(err error) string {
	if wrapped, ok := errors.AsType[*net.OpError](err); ok {
		return wrapped.Op + " " + wrapped.Net + " " + wrapped.Err.Error()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestEveryByteArrives: every byte arrives in order, in pieces of all sizes, even though the
// receiver is slow and deadlines interrupt both sides.
func TestEveryByteArrives(t *testing.T) {
	near, far := sockets(t)
	from, to := nonblock.Wrap(near), nonblock.Wrap(far)
	const size = 8 << 20
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i >> 3 * i)
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		for sent, piece := 0, 1; sent < size; piece = piece*3%(2*nonblock.Most) + 1 {
			_ = from.SetWriteDeadline(time.Now().Add(time.Millisecond))
			n, err := from.Write(data[sent:min(size, sent+piece)])
			sent += n
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write = %v", err)
				break
			}
		}
		_ = from.Close()
	})
	sum, got := sha256.New(), 0
	for piece := 1; ; piece = piece*5%(2*nonblock.Most) + 1 {
		p := make([]byte, piece)
		_ = to.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err := to.Read(p)
		sum.Write(p[:n])
		got += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read = %v", err)
		}
	}
	sending.Wait()
	if want := sha256.Sum256(data); got != size || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d bytes of %d have arrived, or others", got, size)
	}
}

// TestConcurrentUse: a Read or Write during another one uses the wrapped connection's.
func TestConcurrentUse(t *testing.T) {
	near, far := sockets(t)
	c := nonblock.Wrap(near)
	const each = 200
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range each {
				if _, err := c.Write([]byte("0123456789")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() { _, _ = io.CopyN(far, far, 4*each*10) })
	var mu sync.Mutex
	left := 4 * each * 10
	for range 3 {
		all.Go(func() {
			p := make([]byte, 7)
			for {
				n, err := c.Read(p)
				mu.Lock()
				left -= n
				done := left == 0
				mu.Unlock()
				if done {
					_ = c.SetReadDeadline(time.Unix(1, 0)) // end the other goroutines
				}
				if err != nil || done {
					return
				}
			}
		})
	}
	all.Wait()
	if left != 0 {
		t.Errorf("%d bytes are missing", left)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	near, far := sockets(t)
	c := nonblock.Wrap(near)
	p := make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := far.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, p); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, p); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestOthersAreLeftAlone: connections that are not TCP stay unchanged.
func TestOthersAreLeftAlone(t *testing.T) {
	near, _ := net.Pipe()
	if nonblock.Wrap(near) != near {
		t.Error("a pipe was wrapped")
	}
}

func BenchmarkEcho(b *testing.B) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{"plain": func(c net.Conn) net.Conn { return c }, "nonblock": nonblock.Wrap} {
		b.Run(name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				far, err := l.Accept()
				if err == nil {
					_, _ = io.Copy(struct{ io.Writer }{far}, far)
				}
			}()
			near, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer near.Close()
			c := wrap(near)
			p := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = c.Write(p)
				_, _ = io.ReadFull(c, p)
			}
		})
	}
}
