package torture_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

type field struct{ name, value string }

// A coding tells how the end of a body is marked.
type coding int

const (
	none coding = iota
	sized
	chunked
	closing // by the end of the connection
)

func (c coding) String() string {
	return [...]string{"no body", "length", "chunks", "end of connection"}[c]
}

// A message is a request or a response: what its sender writes, and where the writes are cut.
type message struct {
	coding    coding
	size      int // of the body
	lie       int // Content-Length of a response without a body
	fields    []field
	trailer   []field
	chunks    []int // sizes, used in turn
	extension string
	key       stream

	wire    []byte
	head    int // length of what comes before the body
	parts   []part
	cuts    []cut
	abortAt int  // in wire; -1: it is sent to its end
	reset   bool // the sender resets the connection instead of closing it
}

// A part is a run of body bytes within the wire.
type part struct{ wire, body, size int }

// A cut ends a write. With pause, the sender waits until the bytes before it have arrived at the
// other end, for a short time.
type cut struct {
	at    int
	pause bool
}

// build makes the wire of the message, which begins with start.
func (m *message) build(start string) {
	var head strings.Builder
	head.WriteString(start)
	for _, f := range m.fields {
		fmt.Fprintf(&head, "%s: %s\r\n", f.name, f.value)
	}
	switch {
	case m.coding == sized:
		fmt.Fprintf(&head, "Content-Length: %d\r\n", m.size)
	case m.coding == chunked:
		head.WriteString("Transfer-Encoding: chunked\r\n")
	case m.lie > 0:
		fmt.Fprintf(&head, "Content-Length: %d\r\n", m.lie)
	}
	if len(m.trailer) > 0 && m.trailer[0].name != "X-Unannounced" {
		fmt.Fprintf(&head, "Trailer: %s\r\n", m.trailer[0].name)
	}
	head.WriteString("\r\n")
	m.head = head.Len()
	m.wire = []byte(head.String())
	m.abortAt = -1
	body := m.key.bytes(m.size)
	if m.coding != chunked {
		m.parts = []part{{len(m.wire), 0, m.size}}
		m.wire = append(m.wire, body...)
		return
	}
	for i, at := 0, 0; at < m.size; i++ {
		n := min(m.chunks[i%len(m.chunks)], m.size-at)
		m.wire = fmt.Appendf(m.wire, "%x%s\r\n", n, m.extension)
		m.parts = append(m.parts, part{len(m.wire), at, n})
		m.wire = append(append(m.wire, body[at:at+n]...), "\r\n"...)
		at += n
	}
	m.wire = append(m.wire, "0\r\n"...)
	for _, f := range m.trailer {
		m.wire = fmt.Appendf(m.wire, "%s: %s\r\n", f.name, f.value)
	}
	m.wire = append(m.wire, "\r\n"...)
}

// bodyBefore returns how many bytes of the body come before a place in the wire.
func (m *message) bodyBefore(at int) int {
	i := sort.Search(len(m.parts), func(i int) bool { return m.parts[i].wire >= at }) - 1
	if i < 0 {
		return 0
	}
	p := m.parts[i]
	return p.body + min(p.size, at-p.wire)
}

// slice decides where the writes are cut.
func (m *message) slice(r *rand.Rand) {
	n := len(m.wire)
	if n == 0 {
		return
	}
	add := func(at int, pause bool) {
		if at > 0 && at < n {
			m.cuts = append(m.cuts, cut{at, pause})
		}
	}
	switch r.IntN(6) {
	case 0: // one write
	case 1: // byte by byte
		for i := range min(n, 500) {
			add(i, r.IntN(100) == 0)
		}
	case 2: // anywhere
		for range 1 + r.IntN(6) {
			add(r.IntN(n), r.IntN(3) > 0)
		}
	case 3: // within the end of lines
		for range 1 + r.IntN(6) {
			from := r.IntN(n)
			if i := strings.Index(string(m.wire[from:min(n, from+20_000)]), "\r\n"); i >= 0 {
				add(from+i+r.IntN(3), r.IntN(4) > 0)
			}
		}
	case 4: // around what buffers hold
		for range 1 + r.IntN(4) {
			size := []int{2048, 4096, 8192, 32768, 65536}[r.IntN(5)]
			at := size + r.IntN(5) - 2
			if r.IntN(2) == 0 {
				at += m.head
			}
			add(at, r.IntN(3) > 0)
		}
	default: // small pieces
		for at := 0; at < n && len(m.cuts) < 64; {
			at += 1 + r.IntN(1+min(n, 3000))
			add(at, r.IntN(8) == 0)
		}
	}
	slices.SortFunc(m.cuts, func(a, b cut) int { return a.at - b.at })
}

var errAborted = errors.New("aborted as planned")

// write writes the bytes from from to to in pieces. arrived waits until the other end has that
// many bytes of the body.
func (m *message) write(conn net.Conn, wire []byte, from, to int, arrived func(n int)) error {
	stop := to
	if m.abortAt >= 0 && m.abortAt < to {
		stop = m.abortAt
	}
	for _, c := range m.cuts {
		if c.at <= from || c.at >= stop {
			continue
		}
		if _, err := conn.Write(wire[from:c.at]); err != nil {
			return err
		}
		from = c.at
		if c.pause {
			arrived(m.bodyBefore(c.at))
		}
	}
	if from < stop {
		if _, err := conn.Write(wire[from:stop]); err != nil {
			return err
		}
	}
	if stop < to {
		arrived(m.bodyBefore(stop))
		return errAborted
	}
	return nil
}

// hangUp closes a connection, or resets it.
func hangUp(conn net.Conn, reset bool) {
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// Bounds of a pause. What the proxy has read of a header, nobody can see from outside; and a proxy
// may keep a body back for a moment.
const (
	pauseUnseen = 300 * time.Microsecond
	pauseMost   = 4 * time.Millisecond
)

// A gauge tells how much has arrived.
type gauge struct {
	mu   sync.Mutex
	n    int
	wake chan struct{} // closed when n grows; nil: nobody waits
}

func (g *gauge) set(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n = n
	if g.wake != nil {
		close(g.wake)
		g.wake = nil
	}
}

// await waits until the gauge shows n, for at most that long.
func (g *gauge) await(n int, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		g.mu.Lock()
		if g.n >= n && n > 0 {
			g.mu.Unlock()
			return
		}
		if g.wake == nil {
			g.wake = make(chan struct{})
		}
		wake := g.wake
		g.mu.Unlock()
		select {
		case <-wake:
		case <-timer.C:
			return
		}
	}
}

// pause waits until n bytes of a body have arrived.
func (g *gauge) pause(n int) {
	if n == 0 {
		g.await(1<<62, pauseUnseen)
		return
	}
	g.await(n, pauseMost)
}
