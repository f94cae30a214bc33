package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"snowgate/internal/panics"
	"snowgate/proxy/route"
)

// notePanics has the panics that are told during the test noted.
func notePanics(t *testing.T) (stacks func() []string) {
	t.Helper()
	panics.Forget()
	var mu sync.Mutex
	var list []string
	panics.Notify(func(p *panics.Panic) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, p.Stack)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

// wantOnePanic checks that one panic was counted in part since before, and that its stack, which
// goes through frame, was told once.
func wantOnePanic(t *testing.T, part panics.Part, before uint64, stacks []string, frame string) {
	t.Helper()
	if got := panics.Count(part) - before; got != 1 {
		t.Errorf("%d panics counted in %s, want 1", got, part)
	}
	if len(stacks) != 1 || !strings.Contains(stacks[0], frame) {
		t.Errorf("the stacks that were told: %q, want one through %s", stacks, frame)
	}
}

// faultyConn is a connection to a service that panics when told to.
type faultyConn struct {
	net.Conn
	reads, writes *atomic.Bool
}

func (c faultyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.reads.Load() {
		panic("a fault of the test")
	}
	return n, err
}

func (c faultyConn) Write(p []byte) (int, error) {
	if c.writes.Load() {
		panic("a fault of the test")
	}
	return c.Conn.Write(p)
}

// faulty is a gateway whose connections to its service panic when told to.
type faulty struct {
	*gateway
	reads, writes atomic.Bool
}

// newFaulty returns one with two routes: /faulty has the service whose connections panic, /canary
// another one.
func newFaulty(t *testing.T, service http.Handler) *faulty {
	t.Helper()
	f := new(faulty)
	bad := httptest.NewServer(service)
	t.Cleanup(bad.Close)
	good := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(good.Close)
	at, _ := url.Parse(bad.URL)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil || address != at.Host {
			return conn, err
		}
		return faultyConn{conn, &f.reads, &f.writes}, nil
	}
	canary, _ := url.Parse(good.URL)
	f.gateway = newGateway(t, gatewayOptions{dial: dial},
		route.Route{Name: "faulty", Path: "/faulty", Public: true, WebSocket: true, Upstreams: []*url.URL{at}},
		route.Route{Name: "canary", Path: "/canary", Public: true, Upstreams: []*url.URL{canary}})
	return f
}

// canary checks that other exchanges go on.
func (f *faulty) canary(t *testing.T) {
	t.Helper()
	response, err := http.Get(f.URL + "/canary")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("another exchange has status %d", response.StatusCode)
	}
}

// TestPanicOfAnUpload: the sending of a body panics. Before, that ended the process.
func TestPanicOfAnUpload(t *testing.T) {
	asked := make(chan struct{})
	f := newFaulty(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	stacks, before := notePanics(t), panics.Count(panics.Upload)
	c := dial(t, f.address())
	c.send("POST /faulty HTTP/1.1\r\nHost: g.example\r\nContent-Length: 10\r\n\r\n12345")
	f.canary(t)
	<-asked // the head has arrived. What follows meets a connection that panics.
	f.writes.Store(true)
	c.send("67890")
	response, err := http.ReadResponse(c.Reader, nil)
	if err == nil && response.StatusCode != http.StatusBadGateway {
		t.Errorf("the broken exchange has status %d", response.StatusCode)
	}
	f.canary(t)
	wantOnePanic(t, panics.Upload, before, stacks(), "(*upload).send")
}

// TestPanicOfATunnel: one direction of an upgraded connection panics. Before, that ended the process.
func TestPanicOfATunnel(t *testing.T) {
	f := newFaulty(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	}))
	stacks, before := notePanics(t), panics.Count(panics.Tunnel)
	c := dial(t, f.address())
	c.send("GET /faulty HTTP/1.1\r\nHost: g.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the handshake: %v, error %v", response, err)
	}
	f.writes.Store(true)
	c.send("x")
	if _, err := c.ReadByte(); err == nil {
		t.Error("the tunnel goes on")
	}
	f.canary(t)
	wantOnePanic(t, panics.Tunnel, before, stacks(), "copyOneWay")
}

// TestPanicOfAHandshake: the handler panics when it has taken the connection over. net/http leaves
// such a connection alone, so the gateway has to close it.
func TestPanicOfAHandshake(t *testing.T) {
	for name, standard := range map[string]bool{"direct": false, "standard": true} {
		t.Run(name, func(t *testing.T) {
			var faults, never atomic.Bool
			ended := make(chan struct{})
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") == "" {
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer close(ended)
				defer conn.Close()
				faults.Store(true)
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
					"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
				_, _ = io.Copy(io.Discard, conn)
			}))
			t.Cleanup(service.Close)
			at, _ := url.Parse(service.URL)
			panics.Forget()
			before := panics.Count(panics.Handler)
			g := newGateway(t, gatewayOptions{client: func(conn net.Conn) net.Conn { return faultyConn{conn, &never, &faults} }},
				route.Route{Name: "one", Path: "/", Public: true, WebSocket: true, MaxInFlight: 1, Standard: standard, Upstreams: []*url.URL{at}})
			c := dial(t, g.address())
			c.send("GET / HTTP/1.1\r\nHost: g.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read() = %d, %v, want the connection closed", n, err)
			}
			<-ended // the service's connection is closed as well
			// The exchange ends after its connections do: its line is written when all of it has.
			line, text := g.log.next(t)
			faults.Store(false)
			if response, _ := g.ask(t, "GET / HTTP/1.1\r\nHost: g.example\r\n\r\n"); response.StatusCode != http.StatusOK {
				t.Errorf("the place of the broken exchange: the next one has status %d", response.StatusCode)
			}
			if got := panics.Count(panics.Handler) - before; got != 1 {
				t.Errorf("%d panics counted, want 1", got)
			}
			if line.Status != http.StatusSwitchingProtocols || !strings.Contains(text, "writeSwitched") {
				t.Errorf("the access line is %s", text)
			}
		})
	}
}

// TestPanicBehindTheHeader: a handler panics when its response has begun. The client sees that it
// is not whole.
func TestPanicBehindTheHeader(t *testing.T) {
	more := make(chan struct{})
	f := newFaulty(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "more")
	}))
	panics.Forget()
	before := panics.Count(panics.Handler)
	c := dial(t, f.address())
	c.send("GET /faulty HTTP/1.1\r\nHost: g.example\r\n\r\n")
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(response.Body, make([]byte, len("begun"))); err != nil {
		t.Fatal(err)
	}
	f.reads.Store(true)
	close(more)
	if rest, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the answer ends well, with %q", rest)
	}
	f.canary(t)
	if got := panics.Count(panics.Handler) - before; got != 1 {
		t.Errorf("%d panics counted, want 1", got)
	}
	for {
		line, text := f.log.next(t)
		if line.Route != "faulty" {
			continue
		}
		if !line.Aborted || !strings.Contains(text, "faultyConn.Read") || strings.Contains(text, "fault of the test") {
			t.Errorf("the access line is %s", text)
		}
		return
	}
}

// TestPanicOfAHealthCheck: the replica counts as unhealthy, and is asked again.
func TestPanicOfAHealthCheck(t *testing.T) {
	var faults atomic.Int64
	asked := make(chan struct{}, 16)
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(service.Close)
	at, _ := url.Parse(service.URL)
	stacks, before := notePanics(t), panics.Count(panics.Health)
	newGateway(t, gatewayOptions{dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if faults.Add(1) == 1 {
			panic("a fault of the test")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}, route.Route{Name: "checked", Path: "/", Public: true, Upstreams: []*url.URL{at}, Health: &route.HealthCheck{Path: "/", Interval: 1}})
	<-asked // by the check after the one that panicked
	wantOnePanic(t, panics.Health, before, stacks(), "(*checker).ask")
}

// faultyResolver panics at its first look-up.
type faultyResolver struct{ calls atomic.Int64 }

func (r *faultyResolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	if r.calls.Add(1) == 1 {
		panic("a fault of the test")
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// TestPanicOfALookUp: whoever waits for it is answered, and the next request looks up again.
func TestPanicOfALookUp(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(service.Close)
	at, _ := url.Parse(service.URL)
	at.Host = "service.example:" + at.Port()
	stacks, before := notePanics(t), panics.Count(panics.Upstream)
	g := newGateway(t, gatewayOptions{resolver: new(faultyResolver)}, route.Route{Name: "named", Path: "/", Public: true, Upstreams: []*url.URL{at}})
	var last int
	for range 2 { // the first one may look up again by itself
		response, err := http.Get(g.URL + "/")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		last = response.StatusCode
	}
	if last != http.StatusOK {
		t.Errorf("after a look-up that panicked, requests have status %d", last)
	}
	wantOnePanic(t, panics.Upstream, before, stacks(), "lookUp")
}
