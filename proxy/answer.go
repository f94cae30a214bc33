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
	"snowgate/problem"
	"snowgate/proxy/http1"
	"snowgate/request/fields"
)

// accept decides whether the answer of a service is one, before anything of it is sent.
func (f *flight) accept(a *answer) error {
	switch {
	case a.major != 1 && !(a.major == 2 && f.attempt.target.protocol.mayBeHTTP2()):
		return fmt.Errorf("proxy: the service answered in HTTP/%d", a.major)
	case a.status == http.StatusSwitchingProtocols:
		return f.acceptUpgrade(a)
	case a.status < 200 || a.status > 599:
		// 1xx do not come here; net/http takes 099, and panics when asked to send it.
		return fmt.Errorf("proxy: the service answered with status %03d", a.status)
	}
	return nil
}

// pass sends the answer on.
func (f *flight) pass(a *answer) {
	announced := announcedTrailer(a)
	a.header = f.overrule(f.route.EditAnswer.apply(cleanAnswer(a.header)))
	addFields(f.Header(), a.header)
	if _, typed := f.Header()["Content-Type"]; !typed {
		f.Header()["Content-Type"] = nil // do not guess one
	}
	if len(announced) > 0 {
		f.Header()["Trailer"] = []string{strings.Join(announced, ", ")}
	}
	f.WriteHeader(a.status)
	if err := f.stream(a); err != nil {
		panic(http.ErrAbortHandler) // the cause is in the exchange
	}
	f.passTrailer(a, announced)
}

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

// announcedTrailer returns the names of the fields that an answer announces for behind
// its body (RFC 9110 §6.6.2), as far as they may come.
func announcedTrailer(a *answer) (announced []string) {
	if a.length >= 0 {
		return nil // there is no place for them
	}
	for _, line := range valuesOf(a.header, "Trailer") {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if name != "" && mayAnswer(name) && name != "Content-Length" {
				announced = append(announced, name)
			}
		}
	}
	return announced
}

// passTrailer sends the trailer on, which is complete at the end of the body.
func (f *flight) passTrailer(a *answer, announced []string) {
	trailer := f.route.EditAnswer.remove(cleanAnswer(a.body.Trailer()))
	if len(trailer) == 0 {
		return
	}
	_ = f.FlushError() // else a short body would be sent with its length, and without a trailer
	for _, field := range trailer {
		if fields.KindOf(field.Name) == fields.Spelling {
			continue // Content-Length, for one
		}
		name := field.Name
		if !slices.Contains(announced, name) {
			name = http.TrailerPrefix + name
		}
		f.Header()[name] = append(f.Header()[name], field.Value)
	}
}

// stream sends the body of a as it comes: before more of it is waited for, what has come
// is sent.
func (f *flight) stream(a *answer) error {
	buffer := f.forwarder.buffers.Get()
	defer f.forwarder.buffers.Put(buffer)
	header := f.holdHeader(a)
	defer header.letGo()
	for {
		n, err := a.body.Read(buffer[:])
		header.letGo()
		if n > 0 {
			if _, err := f.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			f.blameService(err)
			return err
		}
		if err == nil && a.body.Ready() {
			continue
		}
		if err == nil || f.complete(a) {
			if err := f.FlushError(); err != nil {
				f.blameClient(err)
				return err
			}
		}
		if err != nil {
			if f.request.ProtoMajor == 1 && !f.complete(a) {
				f.allowWrite() // the end, which may come long after what is before it
			}
			return nil
		}
	}
}

// complete reports whether the client has the whole answer when the end of the body was
// written. Else the end is marked by something that the server writes last, and goes into
// one packet with it: in HTTP/2, gRPC even takes an end that comes by itself for an error.
func (f *flight) complete(a *answer) bool { return a.length >= 0 && f.request.ProtoMajor == 1 }

// heldHeader is the header of an answer that waits for the first bytes of its body, so
// that both fit into one packet. A nil one does not wait.
type heldHeader struct {
	mu    sync.Mutex
	over  bool
	timer *time.Timer
}

// holdHeader has the header of a sent within [headerDelay]; at once if nobody knows
// when the body comes. Nothing else may be written until letGo was called.
func (f *flight) holdHeader(a *answer) *heldHeader {
	switch {
	case a.body.Ready():
		return nil
	case a.length < 0 || isEventStream(a.header):
		f.blameClient(f.FlushError())
		return nil
	}
	h := new(heldHeader)
	h.mu.Lock() // the timer may fire before it is stored
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(headerDelay, func() {
		defer panics.Catch(panics.Exchange, f.giveUp)
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.over {
			_ = f.FlushError() // the next write fails as well
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

// interim sends an interim answer on (RFC 9110 §15.2). It takes what the answer proper
// is to have out of the way meanwhile.
//
// An HTTP/1.0 client must not get one.
func (f *flight) interim(status int, header []http1.Field) error {
	if !f.request.ProtoAtLeast(1, 1) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeInterim(status, header)
	return nil
}

// sayContinue tells a client that waits for 100 Continue to send its body, before net/http does:
// WriteHeader(100) stops it. TestContinueBetweenInterimResponses has the race detector find two
// writers without this.
func (f *flight) sayContinue() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeInterim(http.StatusContinue, nil)
}

// writeInterim writes an interim response unless the response proper has begun. In HTTP/1 the
// client gets one 100 Continue. It needs mu.
func (f *flight) writeInterim(status int, header []http1.Field) {
	if f.answered || status == http.StatusContinue && f.continued {
		return
	}
	if f.request.ProtoMajor == 1 && status == http.StatusContinue {
		f.continued = true
	}
	h := f.writer.Header()
	own := h.Clone()
	clear(h)
	addFields(h, cleanAnswer(header))
	if f.request.ProtoMajor == 1 {
		f.allowWrite()
	}
	f.WriteHeader(status)
	clear(h) // which net/http does not do
	for name, values := range own {
		h[name] = values
	}
}

// blameService leaves a broken answer as the cause of the abort that follows.
func (f *flight) blameService(err error) {
	status := http.StatusBadGateway
	if f.givenUp() != nil {
		status = problem.StatusClientClosedRequest
	}
	f.blame(status, err)
}

// blameClient leaves a failed write as the cause of the abort that follows.
func (f *flight) blameClient(err error) {
	if err != nil {
		f.blame(problem.StatusClientClosedRequest, err)
	}
}

func (f *flight) blame(status int, err error) {
	if f.exchange.Cause != nil {
		return
	}
	if reason := f.cutBy(); reason != nil {
		f.exchange.Cause = f.refusal(reason)
		return
	}
	f.exchange.Cause = problem.New(status, "", err)
}
