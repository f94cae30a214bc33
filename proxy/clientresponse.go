package proxy

import (
	"bufio"
	"net/http"
	"sync"
	"time"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/proxy/http1"
)

// clientResponse is the response to the client. Every response passes through it, as it is the
// [http.ResponseWriter] of the round trip. All of it but interim responses belongs to the goroutine
// that serves the request.
type clientResponse struct {
	common   *forwarding
	writer   http.ResponseWriter
	control  http.ResponseController // of writer
	in       *http.Request           // from the client
	exchange *exchange.Exchange
	body     *clientBody // of in; nil: it has none
	lifetime *lifetime
	watch    *tokenWatch
	interims interims

	failing  bool      // the response says that there is none of the service
	flushed  bool      // nothing waits to be sent
	allowed  bool      // a deadline for writing was looked at, and little was written since
	passed   bool      // the whole response of the service was passed on
	writable time.Time // when a deadline for writing was last set
}

// Header implements [http.ResponseWriter].
func (c *clientResponse) Header() http.Header { return c.writer.Header() }

// WriteHeader implements [http.ResponseWriter].
func (c *clientResponse) WriteHeader(status int) {
	if status >= http.StatusOK && c.in.ProtoMajor == 1 && !c.body.whole() {
		// The response begins before the client has sent its whole request. The rest must never be
		// taken for its next request. But it is read, so that it does not reset the connection
		// before the client has the response.
		c.Header().Set("Connection", "close")
		exchange.Linger(c.in.Context())
	}
	if status >= http.StatusOK && !c.failing {
		c.watch.begin()
		if c.in.ProtoMajor == 2 {
			c.body.answering()
		}
	}
	c.flushed = false
	c.writer.WriteHeader(status)
}

// littleWritten is how much net/http only notes when it is written, in bytes, unless it has
// noted as much before.
const littleWritten = 2 << 10

// Write implements [http.ResponseWriter]. A client that takes nothing for too long is
// given up.
func (c *clientResponse) Write(p []byte) (int, error) {
	c.allowWrite()
	c.allowed = len(p) <= littleWritten
	c.flushed = false
	n, err := c.writer.Write(p)
	c.blame(err)
	return n, err
}

// FlushError sends what was written.
func (c *clientResponse) FlushError() error {
	if c.flushed {
		return nil
	}
	if !c.allowed {
		c.allowWrite()
	}
	c.allowed = false
	c.common.answering.Gather()
	err := c.control.Flush()
	c.flushed = err == nil
	if c.in.ProtoMajor == 2 {
		// An HTTP/2 stream is reset by its deadline even if nothing is sent.
		_ = c.control.SetWriteDeadline(time.Time{})
		c.writable = time.Time{}
	}
	return err
}

// allowWrite sets the deadline of one write, unless that was done just now. A round trip that was
// given up gets none, except for a response that says so.
func (c *clientResponse) allowWrite() {
	now := time.Now()
	if now.Sub(c.writable) < c.common.clientIdle/16 && !c.failing {
		return
	}
	c.writable = now
	_ = c.control.SetWriteDeadline(now.Add(c.common.clientIdle))
	// After the deadline was set: whoever gives the round trip up later moves it.
	if !c.failing && c.lifetime.givenUp() != nil {
		_ = c.control.SetWriteDeadline(past)
	}
}

// hijack takes the connection over for a WebSocket.
func (c *clientResponse) hijack() (taken *tunnel, buffered *bufio.ReadWriter, err error) {
	err = c.watch.open(func() (*tunnel, error) {
		conn, rw, err := c.control.Hijack()
		if err != nil {
			return nil, err
		}
		c.exchange.Upgraded = true
		taken, buffered = newTunnel(conn, c.watch.register), rw
		return taken, nil
	})
	return taken, buffered, err
}

// interims are the interim responses of a round trip (RFC 9110 §15.2), which transports pass on by
// goroutines of theirs.
type interims struct {
	mu        sync.Mutex // guards what follows and, until ended, the header of the writer and writes to it
	ended     bool       // the header of the response proper has come
	continued bool       // 100 Continue was sent, in HTTP/1
}

// end ends the interim responses, because the final response has come.
func (i *interims) end() {
	i.mu.Lock()
	i.ended = true
	i.mu.Unlock()
}

// interim sends an interim response on. An HTTP/1.0 client must not get one.
func (c *clientResponse) interim(status int, header []http1.Field) error {
	if !c.in.ProtoAtLeast(1, 1) {
		return nil
	}
	c.interims.mu.Lock()
	defer c.interims.mu.Unlock()
	c.writeInterim(status, header)
	return nil
}

// sayContinue tells a client that waits for 100 Continue to send its body, before net/http does:
// WriteHeader(100) stops it. TestContinueBetweenInterimResponses has the race detector find two
// writers without this.
func (c *clientResponse) sayContinue() {
	c.interims.mu.Lock()
	defer c.interims.mu.Unlock()
	c.writeInterim(http.StatusContinue, nil)
}

// writeInterim writes an interim response unless the final response has begun. It removes the
// fields of the final response from the header meanwhile. In HTTP/1 the client gets one 100
// Continue. The caller holds the lock of interims.
func (c *clientResponse) writeInterim(status int, header []http1.Field) {
	if c.interims.ended || status == http.StatusContinue && c.interims.continued {
		return
	}
	if c.in.ProtoMajor == 1 && status == http.StatusContinue {
		c.interims.continued = true
	}
	h := c.writer.Header()
	own := h.Clone()
	clear(h)
	addFields(h, cleanResponse(header))
	if c.in.ProtoMajor == 1 {
		c.allowWrite()
	} else {
		// net/http's HTTP/2 server encodes h in another goroutine, and goes on doing so when the stream is
		// reset and WriteHeader has returned. It encodes a copy, without this field, if there is one.
		// TestResetWithinInterimResponses has the race detector find both without it.
		h["Content-Length"] = []string{"0"}
	}
	c.WriteHeader(status)
	clear(h) // which net/http does not do
	for name, values := range own {
		h[name] = values
	}
}

// blameService leaves a response that broke off as the cause of the abort that follows.
func (c *clientResponse) blameService(err error) {
	status := http.StatusBadGateway
	if c.lifetime.givenUp() != nil {
		status = problem.StatusClientClosedRequest
	}
	c.leaveCause(status, err)
}

// blame leaves a failed write to the client, if err is one, as the cause of the abort that follows.
func (c *clientResponse) blame(err error) {
	if err != nil {
		c.leaveCause(problem.StatusClientClosedRequest, err)
	}
}

func (c *clientResponse) leaveCause(status int, err error) {
	if c.exchange.Cause != nil {
		return
	}
	if reason := c.watch.cutBy(); reason != nil {
		c.exchange.Cause = c.common.refusal(reason, c.watch.policy)
		return
	}
	c.exchange.Cause = problem.New(status, "", err)
}
