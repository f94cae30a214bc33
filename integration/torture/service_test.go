package torture_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take that has to come at once.
const patience = 20 * time.Second

// A record is what became of one exchange through one proxy.
type record struct {
	clientHas, serviceHas gauge // bytes of bodies

	mu       sync.Mutex
	arrivals []*arrival
	again    bool           // on a connection that the client had used before
	open     sync.WaitGroup // arrivals that the service is busy with
	closed   bool           // no further arrival is expected
	outcome  outcome
}

// An arrival is a request as the service got it.
type arrival struct {
	line    string
	header  http.Header
	framing string
	body    *reading
	trailer http.Header
	end     string // how the body ended
}

// A site is the service, and knows all exchanges that are under way.
type site struct {
	t       testing.TB
	under   sync.Map // marks to *play
	aborted sync.Map // ids of exchanges that may arrive late
	fault   func(format string, args ...any)
}

// A play is an exchange through one proxy.
type play struct {
	*exchange
	*record
	side string
}

// arrive notes a request. It returns nil for one that nobody waits for.
func (s *site) arrive(r *http.Request) (*play, *arrival) {
	mark := r.Header.Get("X-Torture")
	found, ok := s.under.Load(mark)
	if !ok {
		// net/http takes what follows a request with two lengths for another one.
		theirs := strings.HasPrefix(mark, smuggled) && strings.HasSuffix(mark, "-b")
		if _, late := s.aborted.Load(mark); !late && !theirs {
			s.fault("a request that nobody sent, or one that is sent again: %q %s %s", mark, r.Method, r.RequestURI)
		}
		return nil, nil
	}
	p := found.(*play)
	header := r.Header.Clone()
	header.Del("X-Torture")
	framing := fmt.Sprintf("length %d", r.ContentLength)
	if r.ContentLength < 0 {
		framing = "unknown length"
	}
	a := &arrival{line: r.Method + " " + r.RequestURI + " to " + r.Host, header: header, framing: framing, body: newReading(p.request.key), end: "not read"}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil
	}
	p.open.Add(1)
	p.arrivals = append(p.arrivals, a)
	return p, a
}

// take reads up to n bytes of the body, all if n is under 0.
func (p *play) take(a *arrival, r *http.Request, n int) {
	buffer := make([]byte, 32<<10)
	for a.end == "not read" && (n < 0 || a.body.n < n) {
		room := len(buffer)
		if n >= 0 {
			room = min(room, n-a.body.n)
		}
		got, err := r.Body.Read(buffer[:room])
		a.body.Write(buffer[:got])
		p.serviceHas.set(a.body.n)
		switch {
		case errors.Is(err, io.EOF):
			a.end, a.trailer = "whole", r.Trailer
		case isTimeout(err):
			a.end = "hung"
		case err != nil:
			a.end = "broke off"
		}
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// listen starts the service for HTTP/1.1 and returns its address.
func (s *site) listen() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return listener.Addr().String()
}

// serve plays the service on one connection.
func (s *site) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		_ = conn.SetDeadline(time.Now().Add(10 * time.Minute))
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		p, a := s.arrive(r)
		if p == nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		lasts := p.respondOn(conn, in, r, a)
		if !lasts {
			conn.Close()
		}
		p.open.Done()
		if !lasts {
			return
		}
	}
}

// respondOn plays one exchange. It reports whether the connection can be used again.
func (p *play) respondOn(conn net.Conn, in *bufio.Reader, r *http.Request, a *arrival) bool {
	if p.expect && !p.refuses && strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	var reading sync.WaitGroup
	if p.upgrade {
		r.Body = io.NopCloser(io.LimitReader(in, int64(p.request.size)))
		reading.Go(func() { p.take(a, r, -1) })
	} else {
		p.take(a, r, p.when)
	}
	if p.wrongResponse != nil {
		return p.misbehave(conn, a)
	}
	if p.switches && len(r.Header["Upgrade"]) > 0 {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nX-Answer: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
			p.response.fields[0].value)
		return false
	}
	if !p.upgrade && (a.end == "broke off" || a.end == "hung") {
		return false
	}
	for _, m := range p.interims {
		if m.write(conn, m.wire, 0, len(m.wire), func(int) { p.clientHas.pause(0) }) != nil {
			return false
		}
	}
	err := p.response.write(conn, p.response.wire, 0, len(p.response.wire), p.clientHas.pause)
	if p.upgrade {
		if err != nil {
			hangUp(conn, p.response.reset)
		}
		reading.Wait()
		return false
	}
	if errors.Is(err, errAborted) {
		p.leave(conn, a)
	}
	if err != nil {
		return false
	}
	if p.ending == says && a.end != "whole" {
		_ = conn.(*net.TCPConn).CloseWrite() // what comes still must not reset the connection
	}
	p.take(a, r, -1)
	return p.ending == keeps && a.end == "whole" && !r.Close
}

// misbehave writes a malformed response. The connection stays open unless the fault is its end: what
// the proxy makes of the response must not depend on that.
//
// The bytes behind a response are written together with it. The transport of net/http notices them
// only when the next request has the connection already, and takes them for its response; so that
// transport is told to close the connection.
func (p *play) misbehave(conn net.Conn, a *arrival) bool {
	m := &p.response
	wire := m.wire
	if p.wrongResponse.more && p.side != "a" {
		wire = bytes.Replace(wire, []byte("\r\n"), []byte("\r\nConnection: close\r\n"), 1)
	}
	if m.write(conn, wire, 0, len(wire), p.clientHas.pause) != nil || p.wrongResponse.ends {
		return false
	}
	return a.end == "whole"
}

// leave breaks the response off as planned. The kernel resets a connection that is closed with bytes
// left to be read, and what was sent before can be lost with that: they are read first.
func (p *play) leave(conn net.Conn, a *arrival) {
	if !p.response.reset && a.end != "whole" {
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}
	hangUp(conn, p.response.reset)
}

// ServeHTTP plays the service in HTTP/2, where net/http cuts frames.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, a := s.arrive(r)
	if p == nil {
		panic(http.ErrAbortHandler)
	}
	defer p.open.Done()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(patience))
	_ = control.SetWriteDeadline(time.Now().Add(patience))
	p.take(a, r, p.when)
	if a.end == "broke off" || a.end == "hung" {
		panic(http.ErrAbortHandler)
	}
	for i, m := range p.interims {
		setFields(w.Header(), m.fields)
		if r.ProtoMajor == 2 {
			w.Header().Set("Content-Length", "0") // net/http encodes a copy then: the stream may have been reset
		}
		w.WriteHeader(p.codes[i])
		clear(w.Header())
	}
	setFields(w.Header(), p.response.fields)
	if p.response.coding == sized || p.response.lie > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(max(p.response.size, p.response.lie)))
	}
	if p.response.abortAt >= 0 && p.response.abortAt < p.response.head {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(p.status)
	p.writeParts(w, control)
	for _, f := range p.response.trailer {
		w.Header().Set(http.TrailerPrefix+f.name, f.value)
	}
	if p.status < 300 && !p.expect { // else the client of net/http sends no more
		p.take(a, r, -1)
	}
}

func setFields(h http.Header, list []field) {
	for _, f := range list {
		if f.name != "Connection" && f.name != "Keep-Alive" && f.name != "Upgrade" { // HTTP/2 has none
			h.Add(f.name, f.value)
		}
	}
}

// writeParts writes the body in the pieces of the plan.
func (p *play) writeParts(w io.Writer, control *http.ResponseController) {
	m := &p.response
	stop := m.size
	if m.abortAt >= 0 {
		stop = m.bodyBefore(m.abortAt)
	}
	for i, part := range m.parts {
		n := min(part.size, stop-part.body)
		if n <= 0 {
			break
		}
		if _, err := w.Write(m.wire[part.wire : part.wire+n]); err != nil {
			return
		}
		if i < 200 {
			_ = control.Flush()
		}
	}
	if m.abortAt >= 0 {
		_ = control.Flush()
		panic(http.ErrAbortHandler)
	}
}
