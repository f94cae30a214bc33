package cuttest

import (
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{near, far} {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		t.Cleanup(func() { _ = conn.Close() })
	}
	return near, far
}

// readAll returns what is read from conn up to its end, and how much each Read returned.
func readAll(t *testing.T, conn io.Reader) (text string, sizes []int) {
	t.Helper()
	var all strings.Builder
	for buffer := make([]byte, 32<<10); ; {
		n, err := conn.Read(buffer)
		all.Write(buffer[:n])
		if err == io.EOF {
			return all.String(), sizes
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, n)
	}
}

var long = strings.Repeat("0123456789abcdefghijk", 10_000)

func TestModes(t *testing.T) {
	for _, text := range []string{"whole", "bytes", "edges", "random:7", "at:300"} {
		mode, err := Parse(text)
		if err != nil || mode.String() != text {
			t.Errorf("Parse(%q) = %v, %v", text, mode, err)
		}
	}
	for _, text := range []string{"x", "random", "random:", "at", "at:x", "bytes:1"} {
		if mode, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, mode)
		}
	}
}

// TestReads: all bytes come, in the order in which they were sent, and in pieces.
func TestReads(t *testing.T) {
	defer Use(Current())
	for _, mode := range []Mode{Bytes, Edges, Random(1), At(10)} {
		Use(mode)
		near, far := pair(t)
		go func() {
			_, _ = io.WriteString(near, long)
			_ = near.Close()
		}()
		got, sizes := readAll(t, Reads(far))
		if got != long {
			t.Errorf("%v: what came is not what was sent", mode)
		}
		if mode == Bytes && slices.Max(sizes[:byteRun]) > 1 {
			t.Errorf("bytes: the first reads returned %v", sizes[:byteRun])
		}
		if mode == Edges && !slices.Equal(sizes[:7], []int{1, 1, edge - 4, 1, 1, 1, 1}) {
			t.Errorf("edges: the first reads returned %v", sizes[:7])
		}
	}
}

// TestWrites: the peer reads each piece by itself, though its buffer is larger. On a machine that
// stands still it may not come to that in time, so there are some tries.
func TestWrites(t *testing.T) {
	for _, mode := range []Mode{Bytes, Edges, Random(1), At(10)} {
		cut, pieces := mode.pieces(), 0
		cut.writes = true
		for left := len(long); left > 0; pieces++ {
			left -= cut.next(left)
		}
		most := 0
		for try := 0; try < 10 && most < pieces/2; try++ {
			near, far := pair(t)
			if _, err := unreadOf(near); err != nil {
				t.Skip(err)
			}
			go func() {
				_, _ = io.WriteString(mode.Writes(near), long)
				_ = near.Close()
			}()
			got, sizes := readAll(t, far)
			if got != long {
				t.Errorf("%v: what came is not what was sent", mode)
			}
			most = max(most, len(sizes))
		}
		if most < pieces/2 {
			t.Errorf("%v: %d reads for %d pieces", mode, most, pieces)
		}
	}
}

// TestRelay: what is sent comes through, and so do the end of a direction and a reset.
func TestRelay(t *testing.T) {
	defer Use(Current())
	Use(Random(2))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := Relay(t, listener.Addr().String())
	near, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		_, _ = io.WriteString(near, long)
		_ = near.(*net.TCPConn).CloseWrite()
	}()
	if got, _ := readAll(t, far); got != long {
		t.Error("what came is not what was sent")
	}
	_, _ = io.WriteString(far, "back")
	var back [4]byte
	if _, err := io.ReadFull(near, back[:]); err != nil || string(back[:]) != "back" {
		t.Errorf("read %q, %v", back, err)
	}
	_ = far.(*net.TCPConn).SetLinger(0)
	_ = far.Close()
	if _, err := near.Read(back[:]); err == nil || err == io.EOF {
		t.Errorf("after a reset: %v", err)
	}
}

// TestRelayDeliversBeforeAReset: what came before a reset arrives, however slowly it is read.
func TestRelayDeliversBeforeAReset(t *testing.T) {
	const size = 64 << 10
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.ReadFull(conn, make([]byte, 1))
		_, _ = conn.Write(make([]byte, size))
		_ = conn.Close() // with bytes unread, which is a reset
	}()
	conn, err := net.Dial("tcp", Relay(t, listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	if _, err := io.WriteString(conn, "two bytes, and more"); err != nil {
		t.Fatal(err)
	}
	<-gone
	got, read := 0, make([]byte, 1<<10)
	for {
		n, err := conn.Read(read)
		if got += n; err != nil {
			break
		}
		runtime.Gosched()
	}
	if got != size {
		t.Errorf("%d bytes arrived, want %d", got, size)
	}
}
