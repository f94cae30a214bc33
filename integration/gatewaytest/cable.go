package gatewaytest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Cable is a TCP connection to a server that a test can cut, freeze and slow
// down. To Redis, subscriptions can be treated so alone.
//
// Its methods may be called by any goroutine.
type Cable struct {
	listener net.Listener

	mu      sync.Mutex
	target  string
	changed *sync.Cond // fault, pushes or the links
	fault   cableFault
	pushes  bool // the fault is one of subscriptions only
	delay   time.Duration
	links   map[*link]struct{}
	dials   int // connections accepted so far
	closed  bool
}

type cableFault int

const (
	intact cableFault = iota
	cut
	frozen
)

// link is one connection through a cable.
type link struct {
	client, server net.Conn
	push           bool // it has subscribed
}

// NewCable lays a cable to target, host:port. It is taken away when the test ends.
func NewCable(t testing.TB, target string) *Cable {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cable{target: target, listener: listener, links: make(map[*link]struct{})}
	c.changed = sync.NewCond(&c.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.set(cut, false)
		running.Wait()
	})
	return c
}

// Addr returns host:port of the near end.
func (c *Cable) Addr() string { return c.listener.Addr().String() }

// Dials returns how many connections were made to the near end so far.
func (c *Cable) Dials() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dials
}

// Retarget has connections from now on go to another host:port, and closes those there are.
func (c *Cable) Retarget(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = target
	for l := range c.links {
		l.close()
	}
}

// Cut closes all connections, and new ones as soon as they are made.
func (c *Cable) Cut() { c.set(cut, false) }

// CutPushes does the same to subscriptions only.
func (c *Cable) CutPushes() { c.set(cut, true) }

// Freeze keeps connections open and lets nothing through any more. It arrives when
// the cable is mended.
func (c *Cable) Freeze() { c.set(frozen, false) }

// FreezePushes does the same to subscriptions only.
func (c *Cable) FreezePushes() { c.set(frozen, true) }

// Mend ends all faults.
func (c *Cable) Mend() { c.set(intact, false) }

// Delay makes everything take so much longer, one way.
func (c *Cable) Delay(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = d
}

func (c *Cable) set(fault cableFault, pushes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.pushes = fault, pushes
	for l := range c.links {
		if c.state(l) == cut {
			l.close()
		}
	}
	c.changed.Broadcast()
}

// state returns the fault that l suffers from.
func (c *Cable) state(l *link) cableFault {
	if c.pushes && !l.push {
		return intact
	}
	return c.fault
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (c *Cable) serve(client net.Conn) {
	c.mu.Lock()
	target := c.target
	c.dials++
	c.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	defer l.close()
	c.mu.Lock()
	c.links[l] = struct{}{}
	if c.state(l) == cut || c.closed || c.target != target {
		l.close()
	}
	c.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { c.copy(l, server, client, true) })
	both.Go(func() { c.copy(l, client, server, false) })
	both.Wait()
	c.mu.Lock()
	delete(c.links, l)
	c.mu.Unlock()
}

// copy passes on what goes in one direction, until the link is closed.
func (c *Cable) copy(l *link, to io.Writer, from io.Reader, asks bool) {
	defer l.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if asks && isSubscription(buffer[:n]) {
				c.mu.Lock()
				l.push = true
				c.mu.Unlock()
			}
			if c.pass(l) != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

var errCut = errors.New("gatewaytest: the cable is cut")

// pass waits until something may go through l.
func (c *Cable) pass(l *link) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delay := c.delay; delay > 0 {
		c.mu.Unlock()
		<-time.After(delay)
		c.mu.Lock()
	}
	for c.state(l) == frozen {
		c.changed.Wait()
	}
	if c.state(l) == cut {
		return errCut
	}
	return nil
}

// isSubscription finds the command, which clients send at once.
func isSubscription(command []byte) bool {
	return bytes.Contains(bytes.ToLower(command), []byte("\r\nsubscribe\r\n"))
}
