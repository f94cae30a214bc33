package clientconn

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// What is put back is not looked at again: the beginning of HTTP/2 in two pieces is none of HTTP/1.
func TestVersionOfWhatWasPutBack(t *testing.T) {
	for _, first := range []string{"P", "PR"} {
		near, far := net.Pipe()
		conn := Wrap(near, new(Waiters))
		go func() { _, _ = far.Write([]byte(first)); _, _ = far.Write([]byte("PRI * HTTP/2.0\r\n"[len(first):])) }()
		p := make([]byte, 4096)
		n, _ := conn.Read(p)
		conn.Unread(p[:n])
		_, _ = io.ReadFull(conn, p[:16])
		if conn.rester.old {
			t.Errorf("%q: HTTP/2 is taken for HTTP/1", first)
		}
		_ = far.Close()
	}
}

// The deadline goes away though the client is looked for already, as the next request has come with the first.
func TestWatchDuringALookTakesTheDeadlineAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		conn := Wrap(near, new(Waiters))
		defer func() { _, _ = conn.Close(), far.Close() }()
		ctx := conn.Context(t.Context())
		conn.Watch()
		time.Sleep(2 * Glance)
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		conn.Watch()
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Error("the context has ended with the read deadline of an earlier request")
		}
	})
}

// A look that goes on takes nothing from a connection that goes to rest.
func TestRestDuringALook(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	peer, _ := net.Dial("tcp", l.Addr().String())
	defer peer.Close()
	inner, _ := l.Accept()
	rest := NewRest(l.Addr())
	conn := rest.Wrap(inner)
	conn.Context(t.Context())
	conn.Watch()
	for looks := false; !looks; <-time.After(time.Millisecond) {
		conn.read.mu.Lock()
		looks = conn.glance == looking
		conn.read.mu.Unlock()
	}
	if !conn.Rest(time.Now().Add(time.Minute)) {
		t.Fatal("it does not rest")
	}
	_, _ = peer.Write([]byte("request"))
	woken, err := rest.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 7)
	_ = woken.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := io.ReadFull(woken, p); err != nil {
		t.Errorf("%q, %v came back, want the request", p[:n], err)
	}
}

// A connection goes to rest once, and Retire waits for no other.
func TestRestTwice(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()
	peer, _ := net.Dial("tcp", l.Addr().String())
	inner, _ := l.Accept()
	rest := NewRest(l.Addr())
	conn := rest.Wrap(inner)
	conn.rester.old, conn.rester.seen, conn.rester.idle = true, 1, true
	if n, err := conn.Read(make([]byte, serverBuffer)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	if conn.Rest(time.Now().Add(time.Hour)) {
		t.Error("it rests twice")
	}
	_, _ = conn.Close(), peer.Close()
	go func() { _, _ = rest.Accept() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if rest.Retire(ctx); ctx.Err() != nil {
		t.Error("Retire waits for a connection that is nowhere")
	}
}
