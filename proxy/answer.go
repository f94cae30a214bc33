package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"snowgate/problem"
)

// accept decides whether the answer of a service is one, and removes from it
// what is not for the caller. ReverseProxy calls it before anything is sent.
func (f *flight) accept(answer *http.Response) error {
	switch code := answer.StatusCode; {
	case answer.ProtoMajor != 1 && !(answer.ProtoMajor == 2 && f.attempt.target.protocol != http1):
		return fmt.Errorf("proxy: the service answered in %s", answer.Proto)
	case code == http.StatusSwitchingProtocols:
		return f.acceptUpgrade(answer)
	case code < 200 || code > 599:
		// 1xx do not come here; net/http takes 099, and panics when asked to send it.
		return fmt.Errorf("proxy: the service answered with status %03d", code)
	}
	cleanAnswer(answer.Header)
	cleanAnswer(answer.Trailer)
	f.route.EditAnswer.apply(answer.Header)
	if _, typed := answer.Header["Content-Type"]; !typed {
		f.Header()["Content-Type"] = nil // do not guess one
	}
	answer.Body = &answerBody{ReadCloser: answer.Body, flight: f, answer: answer}
	return nil
}

// acceptUpgrade lets through the answer to a WebSocket handshake (RFC 6455
// §4.2.2). ReverseProxy sends its hop-by-hop fields on, so they are reduced to
// the two that are needed.
func (f *flight) acceptUpgrade(answer *http.Response) error {
	protocol, connection := answer.Header["Upgrade"], answer.Header["Connection"]
	if !f.upgrading() || len(protocol) != 1 || !strings.EqualFold(protocol[0], "websocket") ||
		!names(connection, "upgrade") {
		return fmt.Errorf("proxy: the service switched to %q, which was not asked for", protocol)
	}
	removeHopByHop(answer.Header)
	cleanAnswer(answer.Header)
	answer.Header["Upgrade"], answer.Header["Connection"] = protocol, []string{"Upgrade"}
	delete(f.Header(), "Connection") // HTTP neither keeps nor closes the connection any more
	return nil
}

// names reports whether option is among the comma-separated ones of lines.
func names(lines []string, option string) bool {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(name, " \t"), option) {
				return true
			}
		}
	}
	return false
}

// answerBody is the body of an answer. It is read by the goroutine that serves
// the request.
type answerBody struct {
	io.ReadCloser
	flight *flight
	answer *http.Response
}

// Read notes why the answer breaks off, if it does.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.flight.blameService(err)
	}
	return n, err
}

// Close closes the body and checks the trailer, which is complete only then.
func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	cleanAnswer(b.answer.Trailer)
	b.flight.route.EditAnswer.remove(b.answer.Trailer)
	removeHopByHop(b.answer.Trailer)
	delete(b.answer.Trailer, "Content-Length")
	return err
}

// blameService leaves a broken answer as the cause of the abort that follows.
func (f *flight) blameService(err error) {
	status := http.StatusBadGateway
	if f.ctx.Err() != nil {
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
