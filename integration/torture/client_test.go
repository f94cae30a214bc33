package torture_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// How an exchange ended for the client.
const (
	whole  = "whole"
	broke  = "broke off"
	own    = "answered by the proxy"
	hung   = "hung"
	closed = "closed before it was answered"
	left   = "the client left"
)

// An outcome is what the client got.
type outcome struct {
	end      string
	interims []string
	status   int
	header   http.Header
	trailer  http.Header
	body     *reading
	closes   bool
}

// A client speaks to one proxy, one conversation at a time.
type client struct {
	side, address string
	conn          net.Conn
	in            *bufio.Reader
	used          bool // requests were sent on conn
}

// hold holds a conversation.
func (c *client) hold(plays []*play) {
	defer c.hangUp()
	for len(plays) > 0 {
		n := 1
		for n < len(plays) && plays[n].follows {
			n++
		}
		c.send(plays[:n])
		plays = plays[n:]
	}
}

func (c *client) hangUp() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn = nil
}

// send sends requests together, and those that were not answered again if the proxy has said that
// the connection ends.
func (c *client) send(plays []*play) {
	for len(plays) > 0 {
		if c.conn == nil {
			conn, err := net.Dial("tcp", c.address)
			if err != nil {
				plays[0].outcome = outcome{end: fmt.Sprint("cannot connect: ", err)}
				return
			}
			c.conn, c.in, c.used = conn, bufio.NewReader(conn), false
		}
		_ = c.conn.SetDeadline(time.Now().Add(patience))
		done := c.exchange(plays)
		for _, p := range plays[:done] {
			c.settle(p)
		}
		plays = plays[done:]
	}
}

// settle waits until the service is through with the exchange.
func (c *client) settle(p *play) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.open.Wait()
}

// exchange sends the requests and reads the responses until one ends the connection. It returns
// how many are answered.
func (c *client) exchange(plays []*play) (done int) {
	proceed := make(chan struct{})
	var writing sync.WaitGroup
	conn, used := c.conn, c.used
	writing.Go(func() {
		for i, p := range plays {
			p.again = used || i > 0
			if err := p.ask(conn, proceed); err != nil {
				if p.request.abortAt >= 0 {
					hangUp(conn, p.request.reset)
				}
				return
			}
		}
		if fault := plays[len(plays)-1].wrongRequest; fault != nil && fault.ends {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	})
	release := sync.OnceFunc(func() { close(proceed) })
	for _, p := range plays {
		done++
		p.outcome = c.read(p, release)
		if o := &p.outcome; o.end != whole && o.end != own || p.ends() {
			break
		}
	}
	release()
	c.used = true
	// After an early response with full duplex, net/http's server may leave its connection unusable.
	last := plays[done-1]
	tired := c.side == "b" && last.request.size > 0 && (last.early() || last.expect || last.status > 299)
	if tired {
		defer c.hangUp()
	}
	if p := plays[done-1]; p.ends() || p.outcome.end != whole && p.outcome.end != own {
		if p.outcome.end == whole && p.outcome.closes && p.early() {
			writing.Wait() // goes on to send what the service may want
		}
		c.hangUp()
	}
	writing.Wait()
	return done
}

// ends reports whether the connection ends with the exchange.
func (p *play) ends() bool {
	return p.outcome.closes || p.upgrade || p.old || p.wrong() != nil || p.outcome.status == http.StatusSwitchingProtocols
}

// ask writes the request.
func (p *play) ask(conn net.Conn, proceed <-chan struct{}) error {
	m := &p.request
	wire := bytes.Replace(m.wire, []byte(p.mark("a")), []byte(p.mark(p.side)), 2) // one that hides in it has a mark as well
	// The proxy of net/http loses what comes together with the handshake: it reads on from the
	// connection, and not from what was read ahead. Only ours is tried with that.
	waits := p.expect || p.upgrade && (p.side == "b" || !p.ahead)
	if !waits {
		return m.write(conn, wire, 0, len(wire), p.serviceHas.pause)
	}
	if err := m.write(conn, wire, 0, m.head, p.serviceHas.pause); err != nil {
		return err
	}
	<-proceed
	// The transport of net/http wants the body nevertheless if it means to keep the connection; see
	// guardedBody.
	if p.refuses && (p.side != "b" || oneOf(p.lane, h2, h2c) || p.ending != keeps) {
		return errAborted
	}
	return m.write(conn, wire, m.head, len(wire), p.serviceHas.pause)
}

// read reads one response.
func (c *client) read(p *play, release func()) (o outcome) {
	o.body = newReading(p.response.key)
	for {
		r, err := http.ReadResponse(c.in, &http.Request{Method: p.method})
		if err != nil {
			o.end = endOf(err)
			return o
		}
		if r.StatusCode < 200 && r.StatusCode != http.StatusSwitchingProtocols {
			if r.StatusCode == http.StatusContinue {
				release()
			}
			o.interims = append(o.interims, fmt.Sprint(r.StatusCode, r.Header))
			continue
		}
		release()
		o.status, o.header, o.closes, o.end = r.StatusCode, r.Header, r.Close, whole
		if p.upgrade && o.status == http.StatusSwitchingProtocols {
			r.Body = io.NopCloser(c.in)
		}
		o.copy(c, p, r)
		if o.header.Get("X-Answer") == "" && o.end == whole {
			o.end = own
		}
		o.trailer = r.Trailer
		return o
	}
}

// copy reads the body.
func (o *outcome) copy(c *client, p *play, r *http.Response) {
	sum := io.Writer(o.body)
	if o.header.Get("X-Answer") == "" {
		sum = io.Discard
	}
	buffer := make([]byte, 32<<10)
	for {
		room := len(buffer)
		if p.leaves >= 0 {
			if room = min(room, p.leaves-o.body.n); room == 0 {
				o.end = left
				hangUp(c.conn, p.request.reset)
				return
			}
		}
		if p.upgrade && p.response.abortAt < 0 {
			if room = min(room, p.response.size-o.body.n); room == 0 {
				// The client has all. What it sends still is on its way.
				if p.request.size > 0 && !p.clientAborts() {
					p.serviceHas.await(p.request.size, patience)
				}
				return
			}
		}
		n, err := r.Body.Read(buffer[:room])
		sum.Write(buffer[:n])
		p.clientHas.set(o.body.n)
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			o.end = broke
			if isTimeout(err) {
				o.end = hung
			}
		}
		return
	}
}

func endOf(err error) string {
	if isTimeout(err) {
		return hung
	}
	return closed
}
