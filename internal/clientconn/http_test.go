package clientconn_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/internal/clientconn"
)

// listener wraps the accepted connections and keeps their counters.
type listener struct {
	net.Listener

	waiters clientconn.Waiters
	mu      sync.Mutex
	conns   []*counted
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	inner := &counted{Conn: conn}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, inner)
	return clientconn.Wrap(cuttest.Reads(inner), &l.waiters), nil
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// serve starts a server with all timeouts of the gateway.
func serve(t *testing.T, handler http.HandlerFunc, overTLS bool) (*httptest.Server, *listener) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	l := &listener{Listener: server.Listener}
	server.Listener = l
	server.Config.ReadHeaderTimeout = 10 * time.Second
	server.Config.ReadTimeout = 10 * time.Second
	server.Config.WriteTimeout = time.Minute
	server.Config.IdleTimeout = 2 * time.Minute
	server.Config.ConnState = clientconn.ConnState
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(clientconn.ConnContext(ctx, c), connKey{}, c)
	}
	if overTLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, l
}

func get(t *testing.T, server *httptest.Server) {
	t.Helper()
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "hello" {
		t.Fatalf("the response is %q, %v", body, err)
	}
}

// TestRequestsCostOneReadOneWriteAndNoDeadline tests the purpose of the package. If it fails after
// an update of Go, net/http has changed its habits: see the package comment.
func TestRequestsCostOneReadOneWriteAndNoDeadline(t *testing.T) {
	clientconn.NeedsHabits(t)
	cuttest.SkipUnlessWhole(t, "it counts reads")
	server, l := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(w, "hello")
	}, false)
	const requests = 100
	begin := time.Now()
	for range requests {
		get(t, server)
	}
	took := time.Since(begin)
	if len(l.conns) != 1 {
		t.Fatalf("%d connections, want 1", len(l.conns))
	}
	reads, writes, rDead, wDead := l.conns[0].counts()
	// One read waits for the next request. On a machine that stalls, background reads begin, and
	// deadlines pass.
	slow := int(took / (clientconn.Glance / 2))
	if most := requests + 1 + slow; reads > most {
		t.Errorf("%d reads for %d requests, want at most %d", reads, requests, most)
	}
	if writes != requests {
		t.Errorf("%d writes for %d requests", writes, requests)
	}
	if most := 2 + slow; rDead > most || wDead > most {
		t.Errorf("%d and %d deadlines were set for %d requests, want at most %d", rDead, wDead, requests, most)
	}
}

func TestServedOverTLS(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			t.Error("the request has no state of TLS")
		}
		_, _ = io.WriteString(w, "hello")
	}, true)
	for range 10 {
		get(t, server)
	}
}

// TestClientThatLeavesIsNoticed: the context of a request ends soon after its client has left.
func TestClientThatLeavesIsNoticed(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		left := make(chan struct{})
		began := make(chan struct{})
		server, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			select {
			case <-r.Context().Done():
				close(left)
			case <-time.After(20 * time.Second):
			}
		}, overTLS)
		conn := dial(t, server, overTLS)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		<-began
		_ = conn.Close()
		select {
		case <-left:
		case <-time.After(10 * time.Second):
			t.Errorf("TLS: %v: nobody has noticed that the client is gone", overTLS)
		}
	}
}

func dial(t *testing.T, server *httptest.Server, overTLS bool) net.Conn {
	t.Helper()
	address := server.Listener.Addr().String()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	conn = cuttest.Writes(conn)
	if !overTLS {
		return conn
	}
	secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	if err := secured.Handshake(); err != nil {
		t.Fatal(err)
	}
	return secured
}

// TestPipelinedRequests: requests that arrive together get their responses in order. This also
// holds if the first one takes so long that its background read takes a byte of the second.
func TestPipelinedRequests(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(clientconn.Glance * 3 / 2)
		}
		_, _ = io.Copy(w, r.Body)
		_, _ = io.WriteString(w, r.URL.Path)
	}, false)
	conn := dial(t, server, false)
	paths := []string{"/a", "/slow", "/b", "/c", "/slow", "/d"}
	var all strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&all, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n=", path)
	}
	_, _ = io.WriteString(conn, all.String())
	in := bufio.NewReader(conn)
	for _, path := range paths {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "="+path {
			t.Errorf("the response is %q, %v, want %q", body, err, "="+path)
		}
	}
}

// TestHijack: after a hijack, the new owner gets every byte, also a byte that the background read
// took before.
func TestHijack(t *testing.T) {
	for _, pause := range []time.Duration{0, clientconn.Glance * 3 / 2} {
		server, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(pause)
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			line, err := buffered.ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(conn, "got "+line)
			_, _ = io.Copy(conn, buffered) // until the client sends no more
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err == nil {
				t.Error("CloseWrite of a wrapped counter = nil, want an error") // the counter hides the CloseWrite of the socket
			}
		}, false)
		conn := dial(t, server, false)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nline\nrest")
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "got line\nrest" {
			t.Errorf("%v: %q, %v", pause, got, err)
		}
	}
}

// accepted returns a wrapped socket and its peer.
func accepted(t *testing.T) (conn *clientconn.Conn, peer net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if peer, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	inner, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn = clientconn.Wrap(cuttest.Reads(inner), new(clientconn.Waiters))
	t.Cleanup(func() { _ = conn.Close() })
	return conn, peer
}

// TestCloseWrite: a socket is closed in one direction only on request.
func TestCloseWrite(t *testing.T) {
	conn, peer := accepted(t)
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(peer); err != nil || len(got) > 0 {
		t.Errorf("the peer reads %q, %v, want the end", got, err)
	}
	_, _ = peer.Write([]byte("x"))
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if err := read(conn); err != nil {
		t.Errorf("Read after CloseWrite = %v", err)
	}
}

// TestConcurrentUse calls everything at once, for the race detector. Deadlines of a few
// microseconds fire all the time, and yet every byte must arrive.
func TestConcurrentUse(t *testing.T) {
	conn, peer := accepted(t)
	go func() { _, _ = io.Copy(peer, peer) }()

	var all sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					_ = conn.SetDeadline(time.Now().Add(time.Duration((n%50+1)*20*(i+1)) * time.Microsecond))
					runtime.Gosched()
				}
			}
		})
	}
	const size = 64 << 10
	all.Go(func() {
		chunk := make([]byte, 997)
		for sent := 0; sent < size; {
			n, err := conn.Write(chunk[:min(len(chunk), size-sent)])
			sent += n
			if err != nil && !isTimeout(err) {
				t.Errorf("Write = %v", err)
				return
			}
		}
	})
	p := make([]byte, 1009)
	for got := 0; got < size; {
		buf := p[:1+got%len(p)]
		n, err := conn.Read(buf[:len(buf):len(buf)])
		got += n
		if err != nil && !isTimeout(err) {
			t.Errorf("Read = %v", err)
			break
		}
	}
	close(stop)
	all.Wait()
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// TestWithoutWaiting: a handler that reads its body without waiting gets the bytes that came
// together with the header, and the rest when it waits. If this fails after an update of Go,
// net/http does not pass on a Read of 0 bytes any more. Then forwarding must not read ahead.
func TestWithoutWaiting(t *testing.T) {
	clientconn.NeedsHabits(t)
	cuttest.SkipUnlessWhole(t, "it asks what has come with the head")
	type reading struct {
		ahead, rest string
		err         error
	}
	readings := make(chan reading)
	proceed := make(chan struct{})
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var got reading
		conn, _ := r.Context().Value(connKey{}).(*clientconn.Conn)
		conn.WithoutWaiting(func() {
			p := make([]byte, 100)
			n, err := r.Body.Read(p)
			got.ahead, got.err = string(p[:n]), err
			if n > 0 && err == nil {
				if n, err := r.Body.Read(p); n > 0 || err != nil {
					got.err = fmt.Errorf("the next read returns %d, %w", n, err)
				}
			}
		})
		proceed <- struct{}{}
		rest, err := io.ReadAll(r.Body)
		got.rest = string(rest)
		if got.err == nil || err != nil {
			got.err = err
		}
		readings <- got
		_, _ = io.WriteString(w, "hello")
	}, false)
	for _, test := range []struct{ first, later string }{{"hello", ""}, {"he", "llo"}, {"", "hello"}} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // on one connection
			_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"+test.first)
			<-proceed
			_, _ = io.WriteString(conn, test.later)
			got := <-readings
			if got.ahead != test.first || got.rest != test.later || got.err != nil && got.err != io.EOF {
				t.Errorf("%q, later %q: read %q without waiting, then %q, %v", test.first, test.later, got.ahead, got.rest, got.err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", response, err)
			}
		}
		_ = conn.Close()
	}
}
