package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Connections whose handshake is complete but that nobody has accepted yet are
// the ones that a plain Close resets.
func TestRetireTakesWhatWaits(t *testing.T) {
	inner, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const waiting = 50
	var clients []net.Conn
	for i := range waiting {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "%02d", i); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, conn)
	}
	l := newDrainingListener(inner)
	served := make(chan int, 1)
	go func() {
		n := 0
		for ; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept = %v, want net.ErrClosed", err)
				}
				break
			}
			_, _ = io.CopyN(conn, conn, 2)
			_ = conn.Close()
		}
		served <- n
	}()
	l.Retire(t.Context())
	if n := <-served; n != waiting {
		t.Errorf("%d connections were accepted, want %d", n, waiting)
	}
	for i, conn := range clients {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if got, err := io.ReadAll(conn); err != nil || string(got) != fmt.Sprintf("%02d", i) {
			t.Errorf("connection %d: %q, %v", i, got, err)
		}
	}
	if conn, err := net.DialTimeout("tcp", inner.Addr().String(), time.Second); err == nil {
		_ = conn.Close()
		t.Error("a retired listener takes connections")
	}
}
