package clientconn_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"snowgate/integration/cuttest"
	"snowgate/internal/clientconn"
	"snowgate/internal/nonblock"
)

// restful is a server whose idle connections are parked.
type restful struct {
	*http.Server

	address string
	rest    *clientconn.Rest

	mu        sync.Mutex
	forgotten map[string]chan struct{} // by the address of the client; receives a value each time the server forgets its connection
}

// of returns the channel that tells when the server has forgotten a connection of client.
func (s *restful) of(client net.Addr) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.forgotten[client.String()]
	if told == nil {
		told = make(chan struct{}, 1000)
		s.forgotten[client.String()] = told
	}
	return told
}

type restingListener struct {
	net.Listener

	rest *clientconn.Rest
}

func (l restingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.rest.Wrap(cuttest.Reads(nonblock.Wrap(conn))), nil
}

// serveRestfully starts a server that closes connections after idle, and parks them sooner. Its
// default handler responds with the path.
func serveRestfully(t *testing.T, idle, after time.Duration, handler http.HandlerFunc) *restful {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }
	}
	s := &restful{address: inner.Addr().String(), rest: clientconn.NewRest(inner.Addr(), idle, after), forgotten: make(map[string]chan struct{})}
	s.Server = &http.Server{
		Handler: handler, ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		IdleTimeout: idle, ConnContext: clientconn.ConnContext, Protocols: new(http.Protocols),
		ConnState: func(c net.Conn, state http.ConnState) {
			clientconn.ConnState(c, state)
			if state == http.StateClosed {
				s.of(c.RemoteAddr()) <- struct{}{}
			}
		},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(restingListener{inner, s.rest}) })
	serving.Go(func() { _ = s.Serve(s.rest) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	return s
}

// asker is a client with one connection.
type asker struct {
	net.Conn

	t  *testing.T
	in *bufio.Reader
}

func (s *restful) asker(t *testing.T) *asker {
	t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * patience))
	return &asker{cuttest.Writes(conn), t, bufio.NewReader(conn)}
}

func get1(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// says writes text.
func (a *asker) says(text string) {
	a.t.Helper()
	if _, err := io.WriteString(a, text); err != nil {
		a.t.Fatal(err)
	}
}

// hears expects a response with body.
func (a *asker) hears(body string) {
	a.t.Helper()
	response, err := http.ReadResponse(a.in, nil)
	if err != nil {
		a.t.Fatalf("instead of the response %q: %v", body, err)
	}
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != body {
		a.t.Fatalf("the response is %q, %v, want %q", got, err, body)
	}
}

// hearsTheEnd expects the connection to be closed.
func (a *asker) hearsTheEnd() {
	a.t.Helper()
	if got, err := io.ReadAll(a.in); len(got) > 0 || isTimeout(err) {
		a.t.Fatalf("instead of the end: %q, %v", got, err)
	}
}

// forgets waits until the server has forgotten the connection of a. Other connections may exist,
// because another program on a busy machine may try this address.
func (s *restful) forgets(a *asker) {
	a.t.Helper()
	select {
	case <-s.of(a.LocalAddr()):
	case <-time.After(patience):
		a.t.Fatalf("the connection does not go to rest; so far %d times one has, and %d rest", s.rest.Count(), s.rest.Len())
	}
}

// rested returns a client whose connection is parked.
func (s *restful) rested(t *testing.T) *asker {
	t.Helper()
	a := s.asker(t)
	a.says(get1("/a"))
	a.hears("/a")
	s.forgets(a)
	return a
}

const (
	shortly = 5 * time.Millisecond
	// patience limits waits that end at once unless something is wrong.
	patience = time.Minute
)

func TestConnectionRestsAndIsServedAgain(t *testing.T) {
	clientconn.NeedsHabits(t)
	s := serveRestfully(t, time.Minute, shortly, nil)
	a := s.asker(t)
	for i := range 5 {
		path := fmt.Sprintf("/%d", i)
		a.says(get1(path))
		a.hears(path)
		s.forgets(a)
		if got := s.rest.Count(); got != uint64(i+1) {
			t.Errorf("connections have gone to rest %d times, want %d", got, i+1)
		}
	}
}

// TestConnectionRestsAfterAnUpload: a body may be read into any buffer, which says nothing about
// the server's buffer.
func TestConnectionRestsAfterAnUpload(t *testing.T) {
	clientconn.NeedsHabits(t)
	s := serveRestfully(t, time.Minute, shortly, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 64<<10))
		if err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprint(w, n)
	})
	a := s.asker(t)
	const size = 1 << 20
	a.says(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size) + strings.Repeat("x", size))
	a.hears(fmt.Sprint(size))
	s.forgets(a)
}

// TestWhatDoesNotRest: a connection with a request under way, or of another protocol, is never
// parked, however long it is silent. During each silence, another connection is parked ten times.
func TestWhatDoesNotRest(t *testing.T) {
	clientconn.NeedsHabits(t)
	const preface = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // without settings
	for name, test := range map[string]struct {
		first, answer string
		then          string // what is said after the silence
		thenResponse  string
	}{
		"nothing asked yet":                 {"", "", get1("/a"), "/a"},
		"the first request has begun":       {"GET /a HT", "", "TP/1.1\r\nHost: x\r\n\r\n", "/a"},
		"the next one has come with it":     {get1("/a") + "G", "/a", get1("/b")[1:], "/b"},
		"more of the next one has come":     {get1("/a") + get1("/b")[:20], "/a", get1("/b")[20:], "/b"},
		"lines of the next one have come":   {get1("/a") + "GET /b HTTP/1.1\r\n", "/a", "Host: x\r\n\r\n", "/b"},
		"all of the next but its end":       {get1("/a") + get1("/b")[:len(get1("/b"))-1], "/a", "\n", "/b"},
		"a body is awaited":                 {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n=", "", "=", "/a"},
		"one that was sent has no response": {get1("/slow"), "", "", "/slow"},
		"taken over":                        {get1("/hijack"), "", "hello\n", "hello\n"},
		"HTTP/2":                            {preface, "", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", "12345678"},
	} {
		t.Run(name, func(t *testing.T) {
			slow := make(chan struct{})
			s := serveRestfully(t, time.Minute, shortly, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/slow":
					<-slow
				case "/hijack":
					conn, buffered, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
					line, _ := bufio.NewReaderSize(buffered, 4096).ReadString('\n')
					_, _ = io.WriteString(conn, line)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, r.URL.Path)
			})
			a := s.asker(t)
			a.says(test.first)
			if test.answer != "" {
				a.hears(test.answer)
			}
			other := s.asker(t)
			for range 10 {
				other.says(get1("/other"))
				other.hears("/other")
				s.forgets(other)
			}
			if s.rest.Count() != 10 {
				t.Errorf("connections have gone to rest %d times, want 10", s.rest.Count())
			}
			close(slow)
			a.says(test.then)
			switch name {
			case "taken over", "HTTP/2":
				var got strings.Builder
				for !strings.HasSuffix(got.String(), test.thenResponse) {
					b, err := a.in.ReadByte()
					if err != nil {
						t.Fatalf("%v after %q, want %q", err, got.String(), test.thenResponse)
					}
					got.WriteByte(b)
				}
			default:
				a.hears(test.thenResponse)
			}
		})
	}
}

// TestRestEndsWithTheIdleTimeout: the server's idle timeout continues while a connection is parked.
func TestRestEndsWithTheIdleTimeout(t *testing.T) {
	const idle = 300 * time.Millisecond
	s := serveRestfully(t, idle, shortly, nil)
	begin := time.Now()
	a := s.rested(t)
	a.hearsTheEnd()
	if took := time.Since(begin); took < idle {
		t.Errorf("the connection was closed after %s, want %s", took, idle)
	}
	s.isEmpty(t)
}

// TestClientLeavesARestingConnection: a parked connection is released when its client leaves.
func TestClientLeavesARestingConnection(t *testing.T) {
	clientconn.NeedsHabits(t)
	s := serveRestfully(t, time.Minute, shortly, nil)
	a := s.rested(t)
	_ = a.Close()
	s.isEmpty(t)
}

// isEmpty waits until no connection is parked.
func (s *restful) isEmpty(t *testing.T) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	giveUp := time.After(patience)
	for s.rest.Len() > 0 {
		select {
		case <-look.C:
		case <-giveUp:
			t.Fatalf("%d connections rest", s.rest.Len())
		}
	}
	s.rest.Retire(t.Context()) // returns only if no connection is on its way in or out
}

// Retire gives everything back to the server, which answers requests that come then. Nothing
// rests afterwards.
func TestRetire(t *testing.T) {
	clientconn.NeedsHabits(t)
	s := serveRestfully(t, time.Minute, shortly, nil)
	var askers [20]*asker
	for i := range askers {
		askers[i] = s.asker(t)
		askers[i].says(get1("/a"))
		askers[i].hears("/a")
	}
	for _, a := range askers {
		s.forgets(a)
	}
	s.rest.Retire(t.Context())
	for _, a := range askers {
		a.says(get1("/b"))
		a.hears("/b")
	}
	if _, err := s.rest.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Retire = %v, want net.ErrClosed", err)
	}
	if got := s.rest.Count(); got != uint64(len(askers)) {
		t.Errorf("connections have gone to rest %d times, want %d", got, len(askers))
	}
}

// TestCloseOfRest: Close closes the parked connections, and nothing waits afterwards.
func TestCloseOfRest(t *testing.T) {
	clientconn.NeedsHabits(t)
	s := serveRestfully(t, time.Minute, shortly, nil)
	a := s.rested(t)
	_ = s.Close()
	a.hearsTheEnd()
	s.rest.Retire(t.Context())
	_ = s.rest.Close()
}

// TestRequestsAroundTheRest: requests arrive at all times around the moment of parking. Each gets
// its response, while some clients leave. At the end everything retires.
func TestRequestsAroundTheRest(t *testing.T) {
	clientconn.NeedsHabits(t)
	s := serveRestfully(t, time.Minute, 2*time.Millisecond, nil)
	var asking sync.WaitGroup
	for n := range 8 {
		asking.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			a := s.asker(t)
			for i := range 100 {
				path := fmt.Sprintf("/%d/%d", n, i)
				text := get1(path)
				cut := random.IntN(len(text))
				if random.IntN(2) == 0 {
					cut = 0
				}
				if _, err := io.WriteString(a, text[:cut]); err != nil {
					t.Error(err)
					return
				}
				pause(random, 4*time.Millisecond)
				if _, err := io.WriteString(a, text[cut:]); err != nil {
					t.Error(err)
					return
				}
				response, err := http.ReadResponse(a.in, nil)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				if got, err := io.ReadAll(response.Body); err != nil || string(got) != path {
					t.Errorf("the response is %q, %v, want %q", got, err, path)
				}
				if random.IntN(20) == 0 {
					_ = a.Close()
					a = s.asker(t)
				}
			}
			_ = a.Close()
		})
	}
	asking.Wait()
	if s.rest.Count() == 0 {
		t.Error("no connection has gone to rest")
	}
	s.rest.Retire(t.Context())
}

// pause waits for a random time of up to most, which is the purpose of this test.
func pause(random *rand.Rand, most time.Duration) {
	<-time.After(time.Duration(random.Int64N(int64(most))))
}
