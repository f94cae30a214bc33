package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"snowgate/internal/panics"
	"snowgate/internal/request/fields"
	"snowgate/proxy/http1"
	"snowgate/proxy/route"
	"snowgate/proxy/transport"
)

// accept checks the response of a service before anything of it is sent.
func (t *roundTrip) accept(a *transport.Response) error {
	switch {
	case a.Major != 1 && !(a.Major == 2 && t.tries.chosen.Target.Protocol.MayBeHTTP2()):
		return fmt.Errorf("proxy: the service answered in HTTP/%d", a.Major)
	case a.Status == http.StatusSwitchingProtocols:
		return t.acceptUpgrade(a)
	case a.Status < 200 || a.Status > 599:
		// 1xx do not come here; net/http takes 099, and panics when asked to send it.
		return fmt.Errorf("proxy: the service answered with status %03d", a.Status)
	}
	return nil
}

// pass sends the response of a service on. A body that breaks off breaks the response to the client off,
// by panicking with [http.ErrAbortHandler], when the header was sent; the reason is in the exchange. The
// header is sent also if the first bytes of the body are no chunk: what the client gets must not depend
// on whether they came together with the header.
func (c *clientResponse) pass(a *transport.Response, policy *route.Policy) {
	buffer := c.common.buffers.Get()
	defer c.common.buffers.Put(buffer)
	begun := piece{}
	if a.Body.Ready() {
		begun.read(a.Body, buffer[:])
	}
	if a.Status == http.StatusNoContent {
		a.Header = slices.DeleteFunc(a.Header, func(f http1.Field) bool { return f.Name == "Content-Length" }) // RFC 9110 §8.6
	}
	announced := announcedTrailer(a)
	a.Header = overrule(c.Header(), policy, policy.EditResponse.Apply(cleanResponse(a.Header)))
	addFields(c.Header(), a.Header)
	if _, typed := c.Header()["Content-Type"]; !typed {
		c.Header()["Content-Type"] = nil // do not guess one
	}
	if len(announced) > 0 {
		c.Header()["Trailer"] = []string{strings.Join(announced, ", ")}
	}
	c.WriteHeader(a.Status)
	if err := c.stream(a, begun, buffer[:]); err != nil {
		panic(http.ErrAbortHandler) // the cause is in the exchange
	}
	c.passTrailer(a, policy, announced)
}

// piece is what one Read of a body has returned.
type piece struct {
	there bool // it was read
	n     int
	err   error
}

func (p *piece) read(body io.Reader, buffer []byte) {
	n, err := body.Read(buffer)
	*p = piece{there: true, n: n, err: err}
}

// isBroken reports whether the body broke off.
func (p *piece) isBroken() bool { return p.err != nil && !errors.Is(p.err, io.EOF) }

// addFields adds list to h.
func addFields(h http.Header, list []http1.Field) {
	values := make([]string, len(list)) // one allocation for all
	for i, field := range list {
		if said, double := h[field.Name]; double {
			h[field.Name] = append(said, field.Value)
			continue
		}
		values[i] = field.Value
		h[field.Name] = values[i : i+1 : i+1]
	}
}

// announcedTrailer returns the names of the fields that a response announces for behind
// its body (RFC 9110 §6.6.2), as far as they may come.
func announcedTrailer(a *transport.Response) (announced []string) {
	if a.Length >= 0 {
		return nil // there is no place for them
	}
	for _, line := range valuesOf(a.Header, "Trailer") {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if name != "" && mayRespond(name) && name != "Content-Length" {
				announced = append(announced, name)
			}
		}
	}
	return announced
}

// passTrailer sends the trailer on, which is complete at the end of the body.
func (c *clientResponse) passTrailer(a *transport.Response, policy *route.Policy, announced []string) {
	trailer := policy.EditResponse.RemoveFrom(cleanResponse(a.Body.Trailer()))
	if len(trailer) == 0 {
		return
	}
	_ = c.FlushError() // else a short body would be sent with its length, and without a trailer
	for _, field := range trailer {
		if fields.KindOf(field.Name) == fields.Spelling {
			continue // Content-Length, for one
		}
		name := field.Name
		if !slices.Contains(announced, name) {
			name = http.TrailerPrefix + name
		}
		c.Header()[name] = append(c.Header()[name], field.Value)
	}
}

// stream sends the body of a as it comes: before more of it is waited for, what has come is sent. begun
// is what was read of it before, into buffer.
func (c *clientResponse) stream(a *transport.Response, begun piece, buffer []byte) error {
	var header *heldHeader
	if !begun.there {
		header = c.holdHeader(a)
		defer header.letGo()
	}
	for p := begun; ; p.there = false {
		if !p.there {
			p.read(a.Body, buffer)
			header.letGo()
		}
		if p.n > 0 {
			if _, err := c.Write(buffer[:p.n]); err != nil {
				return err
			}
		}
		if p.isBroken() {
			_ = c.FlushError() // so that the client can tell a response that broke off from a lost connection
			c.blameService(p.err)
			return p.err
		}
		if p.err == nil && a.Body.Ready() {
			continue
		}
		if p.err == nil || c.complete(a) {
			if err := c.FlushError(); err != nil {
				c.blame(err)
				return err
			}
		}
		if p.err != nil {
			if c.in.ProtoMajor == 1 && !c.complete(a) {
				c.allowWrite() // the end, which may come long after what is before it
			}
			return nil
		}
	}
}

// complete reports whether the client has the whole response when the end of the body was
// written. Else the end is marked by something that the server writes last, and goes into
// one packet with it: in HTTP/2, gRPC even takes an end that comes by itself for an error.
func (c *clientResponse) complete(a *transport.Response) bool {
	return a.Length >= 0 && c.in.ProtoMajor == 1
}

// headerDelay is how long the header of a response of known length waits for the first byte of its body,
// so that both fit into one packet. Bodies and responses of unknown length wait for nothing.
const headerDelay = 2 * time.Millisecond

// heldHeader is the header of a response that waits for the first bytes of its body, so
// that both fit into one packet. A nil one does not wait.
type heldHeader struct {
	mu    sync.Mutex
	over  bool
	timer *time.Timer
}

// holdHeader has the header of a sent within [headerDelay]; at once if nobody knows
// when the body comes. Nothing else may be written until letGo was called.
func (c *clientResponse) holdHeader(a *transport.Response) *heldHeader {
	switch {
	case a.Body.Ready():
		return nil
	case a.Length < 0 || isEventStream(a.Header):
		c.blame(c.FlushError())
		return nil
	}
	h := new(heldHeader)
	h.mu.Lock() // the timer may fire before it is stored
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(headerDelay, func() {
		defer panics.Catch(panics.Exchange, c.lifetime.giveUp)
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.over {
			_ = c.FlushError() // the next write fails as well
		}
	})
	return h
}

// letGo ends the wait: the body is there.
func (h *heldHeader) letGo() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.timer.Stop()
}

// isEventStream reports whether the body is one of server-sent events.
func isEventStream(header []http1.Field) bool {
	for _, kind := range valuesOf(header, "Content-Type") {
		kind, _, _ = strings.Cut(kind, ";")
		if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
			return true
		}
	}
	return false
}
