package httpserver

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	// holdBytes is how much of a body waits for its end, so that its length can be told.
	holdBytes = 2 << 10
	// outBytes is how much is sent in one go.
	outBytes = 4 << 10
)

// response is the [http.ResponseWriter] of a connection, and is used for one request after
// the other. It does what that of net/http does, which is the measure of its tests, but
// for what only requests need that never come here: to be taken over, to say 100 Continue,
// and to read a body that has not come yet.
type response struct {
	server *Server
	conn   conn
	method string // of the request
	header http.Header

	status   int      // 0: nothing was said yet
	length   int64    // of the body, as the handler has told; -1: it has not
	written  int64    // of the body
	trailers []string // names of fields that were announced for behind the body
	typed    bool     // the kind of the body is known, or there is none
	dated    bool     // the handler has told the date
	begun    bool     // all of the head is in out
	chunked  bool     // the body is sent in chunks
	close    bool     // the connection, after the answer
	err      error    // by which sending has ended

	held []byte // of the body, while the head has not ended
	out  []byte // to be sent
}

// begin makes w ready to answer r.
func (w *response) begin(r *http.Request) {
	clear(w.header)
	*w = response{
		server: w.server, conn: w.conn, method: r.Method, header: w.header, length: -1, close: r.Close,
		trailers: w.trailers[:0], held: w.held[:0], out: w.out[:0],
	}
}

// Header implements [http.ResponseWriter].
func (w *response) Header() http.Header { return w.header }

// SetReadDeadline is for [http.ResponseController]. All of the request has been read.
func (w *response) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for [http.ResponseController]. It is safe for concurrent use.
func (w *response) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// EnableFullDuplex is for [http.ResponseController]. All of the request has been read.
func (w *response) EnableFullDuplex() error { return nil }

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	switch {
	case w.status != 0:
		w.server.logf("http: superfluous WriteHeader(%d) after %d", status, w.status)
	case status < http.StatusContinue || status > 999:
		panic("httpserver: WriteHeader with status " + strconv.Itoa(status)) // as net/http does
	case status < http.StatusOK && status != http.StatusSwitchingProtocols:
		w.appendHead(status, "Content-Length", "Transfer-Encoding")
		w.out = append(w.out, "\r\n"...)
		w.send()
	default:
		w.status = status
		w.declare()
	}
}

// declare puts into the head what the handler has said.
func (w *response) declare() {
	var hidden [3]string
	hide := append(hidden[:0], "Transfer-Encoding")
	if said := w.header["Content-Length"]; len(said) > 0 {
		length, err := strconv.ParseUint(said[0], 10, 63)
		if err != nil || len(said) > 1 {
			w.server.logf("http: invalid Content-Length of %q", said)
		}
		if w.length = int64(length); err != nil || len(said) > 1 || !w.hasBody() {
			w.length = -1
			hide = append(hide, "Content-Length")
		}
	}
	if w.status == http.StatusNotModified {
		hide = append(hide, "Content-Type")
	}
	_, w.typed = w.header["Content-Type"]
	w.typed = w.typed || !w.hasBody() || w.header.Get("Content-Encoding") != ""
	_, w.dated = w.header["Date"]
	for _, line := range w.header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); httpguts.ValidTrailerHeader(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
	if said := w.header["Connection"]; len(said) > 0 && said[0] == "close" {
		w.close = true
	} else if w.close {
		hide = append(hide, "Connection")
	}
	w.appendHead(w.status, hide...)
	if w.close && slices.Contains(hide, "Connection") {
		w.out = append(w.out, "Connection: close\r\n"...)
	}
}

// hasBody reports whether an answer with this status has a body (RFC 9110 §6.4.1), be it
// that one to HEAD is not sent.
func (w *response) hasBody() bool {
	return w.status != http.StatusNoContent && w.status != http.StatusNotModified && w.status != http.StatusSwitchingProtocols
}

// Write implements [http.ResponseWriter].
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.written += int64(len(p))
	switch {
	case len(p) == 0:
		return 0, nil
	case w.err != nil:
		return 0, w.err
	case !w.hasBody():
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written > w.length:
		return 0, http.ErrContentLength
	}
	all := len(p)
	if !w.begun && (w.length < 0 || !w.typed) {
		if p = w.hold(p); len(p) == 0 {
			return all, nil
		}
	}
	w.endHead(p)
	w.body(p)
	if w.err != nil {
		return 0, w.err
	}
	return all, nil
}

// hold keeps p back, as far as there is room for it and it is not much by itself, and returns the rest.
func (w *response) hold(p []byte) []byte {
	if len(w.held) == 0 && len(p) > holdBytes {
		return p
	}
	n := min(len(p), holdBytes-len(w.held))
	w.held = append(w.held, p[:n]...)
	return p[n:]
}

// FlushError is for [http.ResponseController].
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.endHead(nil)
	w.send()
	return w.err
}

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }

// end ends the answer, and reports whether the connection can be used for another one.
func (w *response) end() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.begun && w.length < 0 && w.hasBody() && !w.hasTrailer() && (w.method != http.MethodHead || len(w.held) > 0) {
		w.length = int64(len(w.held))
		w.out = append(w.out, "Content-Length: "...)
		w.out = strconv.AppendInt(w.out, w.length, 10)
		w.out = append(w.out, "\r\n"...)
	}
	w.endHead(nil)
	if w.chunked {
		w.out = append(w.out, "0\r\n"...)
		w.appendTrailer()
		w.out = append(w.out, "\r\n"...)
	}
	w.send()
	broken := w.length >= 0 && w.written != w.length && w.method != http.MethodHead
	return !w.close && !broken && w.err == nil
}

// endHead completes the head, if that has not been done, and begins the body with what was held of it.
// next is what is written then.
func (w *response) endHead(next []byte) {
	if w.begun {
		return
	}
	w.begun = true
	first := next
	if len(w.held) > 0 {
		first = w.held
	}
	if !w.typed && len(first) > 0 {
		w.out = append(w.out, "Content-Type: "...)
		w.out = append(w.out, http.DetectContentType(first)...)
		w.out = append(w.out, "\r\n"...)
	}
	if !w.dated {
		w.out = append(w.out, "Date: "...)
		w.out = append(w.out, w.server.date()...)
		w.out = append(w.out, "\r\n"...)
	}
	if w.chunked = w.length < 0 && w.hasBody() && w.method != http.MethodHead; w.chunked {
		w.out = append(w.out, "Transfer-Encoding: chunked\r\n"...)
	}
	w.out = append(w.out, "\r\n"...)
	if len(w.held) > 0 {
		w.body(w.held)
		w.held = w.held[:0]
	}
}

// body sends p soon.
func (w *response) body(p []byte) {
	if w.method == http.MethodHead {
		return
	}
	if w.chunked {
		w.out = strconv.AppendInt(w.out, int64(len(p)), 16)
		w.out = append(w.out, "\r\n"...)
	}
	if len(w.out)+len(p) <= outBytes {
		w.out = append(w.out, p...)
	} else {
		w.send()
		w.write(p)
	}
	if w.chunked {
		w.out = append(w.out, "\r\n"...)
	}
}

// send sends what waits for it.
func (w *response) send() {
	w.write(w.out)
	w.out = w.out[:0]
}

func (w *response) write(p []byte) {
	if w.err != nil || len(p) == 0 {
		return
	}
	_, w.err = w.conn.Write(p)
}

// hasTrailer reports whether there may be fields behind the body.
func (w *response) hasTrailer() bool {
	if len(w.trailers) > 0 {
		return true
	}
	for name := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// appendTrailer puts the fields behind the body (RFC 9112 §7.1.2) into out.
func (w *response) appendTrailer() {
	if !w.hasTrailer() {
		return
	}
	for _, name := range sortedNames(w.header, nil) {
		if late, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			w.appendField(late, w.header[name])
		} else if slices.Contains(w.trailers, name) {
			w.appendField(name, w.header[name])
		}
	}
}

// appendHead puts the beginning of a head into out: status line and the fields that the handler has
// set, except those to hide.
func (w *response) appendHead(status int, hide ...string) {
	w.out = append(w.out, "HTTP/1.1 "...)
	w.out = strconv.AppendInt(w.out, int64(status), 10)
	w.out = append(w.out, ' ')
	if name := http.StatusText(status); name != "" {
		w.out = append(w.out, name...)
	} else {
		w.out = append(w.out, "status code "...) // as net/http says
		w.out = strconv.AppendInt(w.out, int64(status), 10)
	}
	w.out = append(w.out, "\r\n"...)
	var few [16]string
	for _, name := range sortedNames(w.header, few[:0]) {
		if !strings.HasPrefix(name, http.TrailerPrefix) && !slices.Contains(hide, name) {
			w.appendField(name, w.header[name])
		}
	}
}

// sortedNames appends the names of the fields of h to names, which is empty.
func sortedNames(h http.Header, names []string) []string {
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// appendField puts a field into out. One that would not be one is left out, and line breaks within
// a value become spaces: nobody can end the head by something that is in it.
func (w *response) appendField(name string, values []string) {
	if !httpguts.ValidHeaderFieldName(name) {
		return
	}
	for _, value := range values {
		w.out = append(w.out, name...)
		w.out = append(w.out, ": "...)
		if !isPlain(value) {
			value = lineBreaks.Replace(textproto.TrimString(value))
		}
		w.out = append(w.out, value...)
		w.out = append(w.out, "\r\n"...)
	}
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")

// isPlain reports whether there are no line breaks in value, and no space around it.
func isPlain(value string) bool {
	if value == "" {
		return true
	}
	if value[0] <= ' ' || value[len(value)-1] <= ' ' {
		return false
	}
	for i := range len(value) {
		if value[i] == '\r' || value[i] == '\n' {
			return false
		}
	}
	return true
}
