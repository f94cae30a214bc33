package httpserver

import (
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// request is an [http.Request] with what belongs to it in one piece of memory.
type request struct {
	http.Request

	url  url.URL
	body body
}

// body is a body that has come already. It is safe for concurrent use, as that of net/http is.
type body struct {
	mu     sync.Mutex
	rest   []byte
	closed bool
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case len(b.rest) == 0:
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// parse reads the request that p begins with, and returns it with its length in bytes. It is like usual
// but for what it says, and otherwise what [http.ReadRequest] returns for the same bytes. If p is only the
// beginning of one, or empty, r is nil and length is greater than that of p. For everything that is not a plain
// request of HTTP/1.1 (RFC 9112), length is 0: one with a path for its target, with
// nothing odd about its fields, and, if it has a body, one whose length is told. It keeps nothing of p.
func parse(p []byte, usual *http.Request) (r *request, length int) {
	end := bytes.Index(p, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, len(p) + 1
	}
	r = &request{Request: *usual}
	head := string(p[:end+2]) // all texts of the request are parts of this one
	rest, ok := r.readLine(head)
	if !ok || !r.readFields(rest) {
		return nil, 0
	}
	end += len("\r\n\r\n")
	length = end + int(r.ContentLength)
	if length > len(p) {
		return nil, length
	}
	r.Body = http.NoBody
	if length > end {
		r.body.rest = bytes.Clone(p[end:length])
		r.Body = &r.body
	}
	return r, length
}

// readLine reads the first line of head, and returns what follows it.
func (r *request) readLine(head string) (rest string, ok bool) {
	method, rest, _ := strings.Cut(head, " ")
	if !isMethod(method) {
		return "", false
	}
	end := 0
	plain := true // to be taken as it is
	query := -1
	for ; end < len(rest) && rest[end] > ' '; end++ {
		switch kind := kinds[rest[end]]; {
		case kind&inPath != 0:
		case rest[end] == '?' && query < 0:
			query = end
		default:
			plain = plain && query >= 0 && kind&inTarget != 0
			if kind&inTarget == 0 {
				return "", false
			}
		}
	}
	target := rest[:end]
	if rest, ok = strings.CutPrefix(rest[end:], " HTTP/1.1\r\n"); !ok || target == "" || target[0] != '/' {
		return "", false
	}
	r.Method, r.RequestURI, r.URL = method, target, &r.url
	if !plain {
		parsed, err := url.ParseRequestURI(target)
		r.URL = parsed
		return rest, err == nil
	}
	r.url.Path = target
	if query >= 0 {
		r.url.Path, r.url.RawQuery = target[:query], target[query+1:]
		r.url.ForceQuery = r.url.RawQuery == ""
	}
	return rest, true
}

// isMethod reports whether text is a method of a request that is about a path.
func isMethod(text string) bool {
	for i := range len(text) {
		if kinds[text[i]]&inMethod == 0 {
			return false
		}
	}
	return text != "" && text != http.MethodConnect && text != "PRI" // which begins HTTP/2 (RFC 9113 §3.4)
}

// readFields reads the header fields, which are all of the text.
func (r *request) readFields(text string) bool {
	count := strings.Count(text, "\n")
	r.Header = make(http.Header, count)
	values := make([]string, count)
	hosts := 0
	for i := 0; text != ""; i++ {
		name, value, rest, ok := cutField(text)
		if !ok {
			return false
		}
		text = rest
		switch name {
		case "Host":
			r.Host = value
			hosts++
			continue
		case "Content-Length":
			length, err := strconv.ParseUint(value, 10, 31)
			if _, twice := r.Header[name]; twice || err != nil || value[0] == '+' {
				return false
			}
			r.ContentLength = int64(length)
		case "Connection":
			_, twice := r.Header[name]
			r.Close = isWord(value, "close")
			if twice || !r.Close && !isWord(value, "keep-alive") {
				return false
			}
		case "Transfer-Encoding", "Trailer", "Upgrade", "Expect":
			return false
		}
		if said, more := r.Header[name]; more {
			r.Header[name] = append(said, value)
			continue
		}
		values[i] = value
		r.Header[name] = values[i : i+1 : i+1]
	}
	if pragma := r.Header["Pragma"]; len(pragma) > 0 && pragma[0] == "no-cache" && r.Header["Cache-Control"] == nil {
		r.Header["Cache-Control"] = []string{"no-cache"} // RFC 9111 §5.4, as net/http does
	}
	return hosts == 1 && isHost(r.Host)
}

// cutField cuts the first line off, and returns the name in its canonical form.
func cutField(text string) (name, value, rest string, ok bool) {
	i, canonical := 0, true
	for begins := true; i < len(text) && kinds[text[i]]&inName != 0; i++ {
		c := text[i]
		canonical = canonical && (begins && !('a' <= c && c <= 'z') || !begins && !('A' <= c && c <= 'Z'))
		begins = c == '-'
	}
	if i == 0 || i == len(text) || text[i] != ':' {
		return "", "", "", false
	}
	name, rest = text[:i], text[i+1:]
	if !canonical {
		name = http.CanonicalHeaderKey(name)
	}
	i = 0
	for i < len(rest) && kinds[rest[i]]&inValue != 0 {
		i++
	}
	value, rest = rest[:i], rest[i:]
	if len(rest) < 2 || rest[0] != '\r' || rest[1] != '\n' {
		return "", "", "", false
	}
	return name, textproto.TrimString(value), rest[2:], true
}

// isWord reports whether text is word in any case, which is one of ASCII. There are letters beyond that are the same
// as one of it to [strings.EqualFold], and longer.
func isWord(text, word string) bool { return len(text) == len(word) && strings.EqualFold(text, word) }

// isHost reports whether nobody can be in doubt about host.
func isHost(host string) bool {
	for i := range len(host) {
		if kinds[host[i]]&inHost == 0 {
			return false
		}
	}
	return host != ""
}

// kind says where a byte may be.
type kind uint8

const (
	inMethod kind = 1 << iota // that anybody uses
	inName                    // of a field: tchar (RFC 9110 §5.6.2)
	inValue                   // of a field: field-vchar, space or tab (RFC 9110 §5.5)
	inPath                    // and stands for itself there
	inTarget                  // at all: a printable character of ASCII
	inHost
)

var kinds = func() (kinds [256]kind) {
	for c := range 256 {
		b := byte(c)
		letter := 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9'
		if 'A' <= b && b <= 'Z' || b == '-' {
			kinds[c] |= inMethod
		}
		if httpguts.IsTokenRune(rune(c)) {
			kinds[c] |= inName
		}
		if b >= ' ' && b != 0x7f || b == '\t' {
			kinds[c] |= inValue
		}
		if letter || strings.IndexByte("-._~/", b) >= 0 {
			kinds[c] |= inPath
		}
		if b > ' ' && b < 0x7f {
			kinds[c] |= inTarget
		}
		if letter || strings.IndexByte("-._:[]", b) >= 0 {
			kinds[c] |= inHost
		}
	}
	return kinds
}()
