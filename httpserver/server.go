// Package httpserver answers requests of HTTP/1.1 that are like nearly all: whole and plain.
// Everything else it leaves to net/http, connection and all.
//
// A [Server] reads what has come on a connection. If that is a request of at most 16 KiB,
// body included, in which nothing is out of the ordinary, it calls the handler. If there is any doubt (a
// larger request, one that comes in pieces, other versions of HTTP, a body in chunks, an upgrade, a
// field that is there twice and must not be, a byte that has no business where it is), the
// connection goes to net/http with everything that was read, which decides what that is and
// answers it, and comes back when net/http waits for the next request: see [clientconn.Rest].
//
// So a mistake here can make a request slow, but never understood in another way than net/http would:
// what is taken for a request is what [http.ReadRequest] takes for the same request, which is
// fuzzed. The other direction is of no interest.
//
// It takes less time than net/http because the request is in one piece of memory, nothing reads in the
// background while it is answered, and there are no deadlines for reading a body that is
// there already.
package httpserver

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/clientconn"
)

type conn = *clientconn.Conn

// Options is the configuration of a [Server]. All of it must be set.
type Options struct {
	Handler http.Handler
	// BaseContext is what the contexts of all requests derive from.
	BaseContext context.Context //nolint:containedctx // as in http.Server
	// FirstTimeout is how long a new connection may stay without a request.
	FirstTimeout time.Duration
	// IdleTimeout is how long it may stay without a further one.
	IdleTimeout time.Duration
	// RestAfter is when it goes to rest instead of waiting here. It is shorter.
	RestAfter time.Duration
	// WriteTimeout is for answers whose handler sets no deadline by itself: how long handler and client may
	// take together, at least. At most it is that and the longest time for which the request can have been waited
	// for, so that nobody has to look at the clock when it comes.
	WriteTimeout time.Duration
	// ErrorLog is told of panics, and of handlers that answer twice.
	ErrorLog *log.Logger
}

// Server serves connections that a [clientconn.Rest] has wrapped. [New] makes one. It is safe for concurrent
// use.
//
// The contexts of its requests end with the connection, and not with the handler, and have none of the values
// of net/http. Connections cannot be hijacked: whoever asks for that says Upgrade, and is served by others.
type Server struct {
	Options

	idle   [2]time.Duration // RestAfter and IdleTimeout
	others others
	closed chan struct{}
	now    atomic.Pointer[second]

	mu        sync.Mutex
	conns     map[conn]struct{} // nil: the server is closed
	listeners []net.Listener
}

// New returns a Server.
func New(o Options) *Server {
	return &Server{
		Options: o, idle: [...]time.Duration{o.RestAfter, o.IdleTimeout},
		others: others{conns: make(chan net.Conn), closed: make(chan struct{})},
		closed: make(chan struct{}), conns: make(map[conn]struct{}),
	}
}

// Serve serves what l accepts until that fails; it returns the error. Temporary errors, such as having
// too many open files, are waited out.
func (s *Server) Serve(l net.Listener) error {
	const least, most = 5 * time.Millisecond, time.Second
	if !s.open(l) {
		_ = l.Close()
		return net.ErrClosed
	}
	for pause := least; ; {
		accepted, err := l.Accept()
		if err == nil {
			pause = least
			go s.serve(accepted)
			continue
		}
		if temporary, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); !ok || !temporary.Temporary() {
			return err
		}
		s.logf("http: Accept error: %v; retrying in %v", err, pause)
		select {
		case <-time.After(pause):
		case <-s.closed:
			return err
		}
		pause = min(2*pause, most)
	}
}

// Others returns a listener for an [http.Server] that serves what this one does not.
func (s *Server) Others() net.Listener { return &s.others }

// others is where connections go on. Those that come after its Close are closed.
type others struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements [net.Listener].
func (o *others) Accept() (net.Conn, error) {
	select {
	case c := <-o.conns:
		return c, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (o *others) Close() error {
	o.once.Do(func() { close(o.closed) })
	return nil
}

// Addr implements [net.Listener].
func (o *others) Addr() net.Addr { return &net.TCPAddr{} }

// pass leaves c to whoever accepts it.
func (o *others) pass(c net.Conn) {
	select {
	case o.conns <- c:
	case <-o.closed:
		_ = c.Close()
	}
}

// Close closes all listeners, that of others included, and all connections that are served here.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return nil
	}
	close(s.closed)
	_ = s.others.Close()
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	return nil
}

// open notes a listener, unless the server is closed.
func (s *Server) open(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.listeners = append(s.listeners, l)
	return true
}

// add notes a connection, unless the server is closed.
func (s *Server) add(c conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) logf(format string, args ...any) { s.ErrorLog.Printf(format, args...) }

// second is a second of the clock as HTTP writes it.
type second struct {
	unix int64
	text string
}

// date returns the time as HTTP writes it (RFC 9110 §5.6.7).
func (s *Server) date() string {
	now := time.Now()
	if known := s.now.Load(); known != nil && known.unix == now.Unix() {
		return known.text
	}
	text := now.UTC().Format(http.TimeFormat)
	s.now.Store(&second{now.Unix(), text})
	return text
}

const (
	// inBytes is what is read in one go.
	inBytes = 4 << 10
	// mostBytes is what a request may have, with its body.
	mostBytes = 16 << 10
)

// patience is how long the rest of a request that comes in pieces is waited for, before it is net/http's.
const patience = 50 * time.Millisecond

// desk is what serving a connection takes while something is asked on it.
type desk struct {
	in       []byte    // what was read, and not used yet; it has inBytes, or mostBytes
	have     int       // bytes of it
	posted   bool      // the last request was a POST
	since    time.Time // when the last answer ended
	by       time.Time // the request has come before that
	hurry    time.Time // when the rest of it must have; zero: it has not begun, or is here
	response response
}

var desks = sync.Pool{New: func() any {
	return &desk{in: make([]byte, inBytes), response: response{header: make(http.Header), out: make([]byte, 0, outBytes)}}
}}

// serve serves a connection for as long as that takes.
func (s *Server) serve(accepted net.Conn) {
	c, ok := accepted.(conn)
	if !ok {
		s.others.pass(accepted)
		return
	}
	ctx := c.Context(s.BaseContext)
	if !s.add(c) {
		_ = c.Close()
		return
	}
	end := broken
	defer func() { // also if the handler ends the goroutine
		s.remove(c)
		switch end {
		case finished, broken:
			_ = c.Close()
		case odd:
			_ = c.SetDeadline(time.Time{}) // others have their own
			s.others.pass(c)
		}
	}()
	usual := new(http.Request).WithContext(ctx)
	usual.Proto, usual.ProtoMajor, usual.ProtoMinor = "HTTP/1.1", 1, 1
	usual.RemoteAddr = c.RemoteAddr().String()
	d, _ := desks.Get().(*desk)
	d.have, d.posted, d.hurry = 0, false, time.Time{}
	d.response.server, d.response.conn = s, c
	if end = s.work(d, usual); end == broken {
		return // the response may still be used by who has broken it
	}
	if end == odd {
		c.Unread(d.in[:d.have])
	}
	d.release()
	desks.Put(d)
}

// outcome is what becomes of a connection.
type outcome int

const (
	goesOn   outcome = iota
	finished         // it is to be closed
	broken           // the same, because the handler has not returned
	odd              // it is for others
	atRest           // it belongs to its Rest
)

// work answers requests until there is something else to do with the connection. They are
// like usual, but for what they say.
func (s *Server) work(d *desk, usual *http.Request) outcome {
	times := []time.Duration{s.FirstTimeout}
	d.since = time.Now()
	for {
		d.skipLines()
		r, length := parse(d.in[:d.have], usual)
		switch {
		case r != nil:
			d.hurry, d.posted = time.Time{}, r.Method == http.MethodPost
			d.response.conn.Watch()
			_ = d.response.SetWriteDeadline(d.by.Add(s.WriteTimeout))
			if end := s.answer(&d.response, &r.Request); end != goesOn {
				return end
			}
			d.have = copy(d.in, d.in[length:d.have])
			times, d.since = s.idle[:], time.Now()
			d.by = d.since
		case length == 0 || length > mostBytes:
			return odd
		case d.have == 0:
			if end := d.await(times); end != goesOn {
				return end
			}
		case !d.readOn(length):
			return odd // also if it has ended: net/http knows what that means
		}
	}
}

// skipLines drops an empty line behind a POST, which old clients send though it is no part of the body (RFC 9112
// §2.2), as net/http does.
func (d *desk) skipLines() {
	if !d.posted || d.have == 0 {
		return
	}
	lines := 0
	for lines < min(d.have, len("\r\n\r\n")) && (d.in[lines] == '\r' || d.in[lines] == '\n') {
		lines++
	}
	if d.have = copy(d.in, d.in[lines:d.have]); d.have > 0 {
		d.posted = false
	}
}

// answer answers r.
func (s *Server) answer(w *response, r *http.Request) (end outcome) {
	defer func() {
		if end != broken {
			return
		}
		if fault := recover(); fault != nil && fault != http.ErrAbortHandler { //nolint:errorlint // a panic is no error
			stack := make([]byte, 64<<10)
			stack = stack[:runtime.Stack(stack, false)]
			s.logf("http: panic serving %v: %v\n%s", r.RemoteAddr, fault, stack)
		}
	}()
	end = broken
	w.begin(r)
	s.Handler.ServeHTTP(w, r)
	if !w.end() {
		return finished
	}
	return goesOn
}

// await waits for the next request. The times count from d.since: after each but the last of them the
// connection goes to rest, if it can, and after that it is closed.
func (d *desk) await(times []time.Duration) outcome {
	c, last := d.response.conn, d.since.Add(times[len(times)-1])
	for _, wait := range times {
		d.by = d.since.Add(wait)
		_ = c.SetReadDeadline(d.by)
		n, err := c.Read(d.in)
		switch {
		case n > 0:
			d.have = n
			return goesOn
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return finished
		case len(times) > 1 && c.Rest(last):
			return atRest
		}
	}
	return finished
}

// readOn reads more of a request that has begun, and has length bytes at least. It reports whether that came soon.
func (d *desk) readOn(length int) bool {
	c := d.response.conn
	if length > len(d.in) {
		d.in = append(make([]byte, 0, mostBytes), d.in[:d.have]...)[:mostBytes]
	}
	if d.hurry.IsZero() {
		d.hurry = time.Now().Add(patience)
	}
	_ = c.SetReadDeadline(d.hurry)
	n, err := c.Read(d.in[d.have:])
	d.have += n
	return err == nil
}

// release lets go of everything that belongs to a connection, and of memory that is out of the ordinary.
func (d *desk) release() {
	if len(d.in) > inBytes {
		d.in = make([]byte, inBytes)
	}
	w := &d.response
	w.conn, w.server = nil, nil
	clear(w.header)
	if cap(w.out) > 4*outBytes {
		w.out = make([]byte, 0, outBytes)
	}
}
