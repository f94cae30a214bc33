package httpserver_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/httpserver"
)

// script is a handler that writes down what it is told.
type script func(w *writer, r *http.Request)

// writer is a ResponseWriter for tests.
type writer struct {
	http.ResponseWriter

	notes *[]string
}

func (w *writer) note(format string, args ...any) {
	*w.notes = append(*w.notes, fmt.Sprintf(format, args...))
}

func (w *writer) write(text string) {
	n, err := io.WriteString(w.ResponseWriter, text)
	w.note("wrote %d, %v", n, err)
}

func (w *writer) flush() {
	w.note("flushed, %v", http.NewResponseController(w.ResponseWriter).Flush())
}

func (w *writer) set(name string, values ...string) { w.Header()[name] = values }

// result is what is to be compared.
type result struct {
	Answer string   // as text, with the fields in order
	Notes  []string // of the handler
	Logs   bool     // whether something was logged
}

// side is one of the servers that are compared.
type side struct {
	address string
	log     *buffer
	handler chan http.HandlerFunc // the next one
}

// ServeHTTP implements [http.Handler].
func (s *side) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/again" {
		_, _ = io.WriteString(w, "again")
		return
	}
	(<-s.handler)(w, r)
}

// sides returns the server of this package and that of net/http.
func sides(t testing.TB) (ours, theirs *side) {
	t.Helper()
	ours = &side{log: new(buffer), handler: make(chan http.HandlerFunc, 1)}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if who(r) != plainly {
			t.Errorf("%s is not served here", r.RequestURI)
		}
		ours.ServeHTTP(w, r)
	}, func(o *httpserver.Options) { o.ErrorLog = log.New(ours.log, "", 0) })
	ours.address = s.address

	theirs = &side{log: new(buffer), handler: make(chan http.HandlerFunc, 1)}
	l := listen(t)
	plain := &http.Server{Handler: theirs, ErrorLog: log.New(theirs.log, "", 0), ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = plain.Serve(l) }()
	t.Cleanup(func() { _ = plain.Close(); <-ended })
	theirs.address = l.Addr().String()
	return ours, theirs
}

// ask sends raw, and a second request after the answer.
func (s *side) ask(t testing.TB, raw string, do script) (got result) {
	t.Helper()
	logged, done := len(s.log.String()), make(chan struct{})
	s.handler <- func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		do(&writer{w, &got.Notes}, r)
	}
	c := dial(t, s.address)
	c.says(raw)
	method, _, _ := strings.Cut(raw, " ")
	got.Answer = c.transcript(method)
	happens(t, done, "the handler returns")
	_, err := io.WriteString(c, "GET /again HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	var again *http.Response
	if err == nil {
		again, err = http.ReadResponse(c.in, nil)
	}
	switch {
	case err == nil:
		body, _ := io.ReadAll(again.Body)
		got.Answer += fmt.Sprintf("[open: %s]\n", body)
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.Error("the connection is neither open nor closed")
	default:
		got.Answer += "[closed]\n"
	}
	_ = c.Close()
	got.Logs = len(s.log.String()) > logged
	return got
}

// transcript reads an answer and returns it as text, with all interim ones.
func (c *client) transcript(method string) string {
	var text strings.Builder
	for {
		var head bytes.Buffer
		for {
			line, err := c.in.ReadString('\n')
			head.WriteString(line)
			if err != nil {
				return text.String() + inOrder(head.String()) + "[no answer]\n"
			}
			if line == "\r\n" {
				break
			}
		}
		text.WriteString(inOrder(head.String()))
		if strings.HasPrefix(head.String(), "HTTP/1.1 1") && !strings.HasPrefix(head.String(), "HTTP/1.1 101") {
			continue
		}
		in := bufio.NewReader(io.MultiReader(&head, c.in))
		answer, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return text.String() + "[" + err.Error() + "]\n"
		}
		if answer.ContentLength < 0 && len(answer.TransferEncoding) == 0 && answer.StatusCode != http.StatusSwitchingProtocols {
			text.WriteString("[until the end]\n")
		}
		body, err := io.ReadAll(answer.Body)
		fmt.Fprintf(&text, "[%d bytes] %.60q\n", len(body), body)
		if err != nil {
			fmt.Fprintf(&text, "[%v]\n", err)
		}
		var trailer bytes.Buffer
		_ = answer.Trailer.Write(&trailer)
		text.WriteString(inOrder("\r\n" + trailer.String()))
		c.in = bufio.NewReader(io.MultiReader(in, c.in)) // what was read too far
		return text.String()
	}
}

// inOrder returns a head with its fields in order, and without what depends on the time.
func inOrder(head string) string {
	first, rest, _ := strings.Cut(head, "\r\n")
	lines := slices.DeleteFunc(strings.SplitAfter(rest, "\n"), func(line string) bool { return line == "" || line == "\r\n" })
	for i, line := range lines {
		value, ok := strings.CutPrefix(line, "Date: ")
		if at, err := http.ParseTime(strings.TrimSpace(value)); ok && err == nil && time.Since(at).Abs() < time.Minute {
			lines[i] = "Date: now\r\n"
		}
	}
	slices.Sort(lines)
	return strings.TrimPrefix(strings.ReplaceAll(first+"\r\n"+strings.Join(lines, ""), "\r\n", "\n"), "\n")
}

// asked is how every script is asked.
var asked = []string{
	"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
}

const (
	large = 32 << 10
	some  = 3000 // more than is held
)

func status(code int) script { return func(w *writer, _ *http.Request) { w.WriteHeader(code) } }

// told writes n bytes after it has said that there are length.
func told(length string, n int) script {
	return func(w *writer, _ *http.Request) {
		w.set("Content-Length", length)
		w.write(strings.Repeat("x", n))
	}
}

// withStatus sets everything that an answer without a body must not have, and writes a body.
func withStatus(code int) script {
	return func(w *writer, _ *http.Request) {
		w.set("Content-Length", "5")
		w.set("Content-Type", "text/x")
		w.set("Content-Encoding", "gzip")
		w.set("Etag", `"1"`)
		w.set("Trailer", "X-Sum")
		w.WriteHeader(code)
		w.write("hello")
		w.flush()
	}
}

// These are to be answered as net/http does.
var scripts = []struct {
	name string
	do   script
}{
	{"nothing", func(*writer, *http.Request) {}},
	{"a small body", func(w *writer, _ *http.Request) { w.write("hello") }},
	{"several writes", func(w *writer, _ *http.Request) {
		for range 5 {
			w.write("hello ")
		}
		w.write("")
	}},
	{"an empty write", func(w *writer, _ *http.Request) { w.write("") }},
	{"just as much as is held", func(w *writer, _ *http.Request) { w.write(strings.Repeat("x", 2048)) }},
	{"just as much as is held, in two", func(w *writer, _ *http.Request) {
		w.write(strings.Repeat("x", 2000))
		w.write(strings.Repeat("x", 48))
	}},
	{"a byte more", func(w *writer, _ *http.Request) { w.write(strings.Repeat("x", 2049)) }},
	{"a byte more, in two", func(w *writer, _ *http.Request) {
		w.write(strings.Repeat("x", 2000))
		w.write(strings.Repeat("x", 49))
	}},
	{"more than is held, in many", func(w *writer, _ *http.Request) {
		for range some {
			w.write("x")
		}
	}},
	{"much", func(w *writer, _ *http.Request) {
		w.write(strings.Repeat("x", large))
		w.write(strings.Repeat("y", large))
	}},
	{"much, with its length", func(w *writer, _ *http.Request) {
		w.set("Content-Length", fmt.Sprint(2*large))
		w.write(strings.Repeat("x", large))
		w.write(strings.Repeat("y", large))
	}},
	{"about what is sent in one go", func(w *writer, _ *http.Request) {
		for n := 3900; n < 4200; n += 7 {
			w.write(strings.Repeat("x", n))
		}
	}},
	{"WriteString, ReadFrom", func(w *writer, _ *http.Request) {
		n, err := io.Copy(w.ResponseWriter, strings.NewReader(strings.Repeat("x", some)))
		w.note("%d, %v", n, err)
	}},

	{"length", told("5", 5)},
	{"length of nothing", told("0", 0)},
	{"length, and nothing written", func(w *writer, _ *http.Request) { w.set("Content-Length", "5") }},
	{"length, and a status only", func(w *writer, _ *http.Request) { w.set("Content-Length", "5"); w.WriteHeader(http.StatusOK) }},
	{"too short", told("10", 5)},
	{"too short, flushed", func(w *writer, _ *http.Request) { w.set("Content-Length", "10"); w.write("hello"); w.flush() }},
	{"too long", told("3", 5)},
	{"too long for nothing", told("0", 5)},
	{"too long, in two", func(w *writer, r *http.Request) { told("3", 3)(w, r); w.write("lo") }},
	{"too long, then short again", func(w *writer, r *http.Request) { told("3", 5)(w, r); w.write("l") }},
	{"zeros first", told("005", 5)},
	{"length set too late", func(w *writer, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.set("Content-Length", "3")
		w.write("hello")
	}},

	{"204", status(http.StatusNoContent)},
	{"304", status(http.StatusNotModified)},
	{"204 with everything", withStatus(http.StatusNoContent)},
	{"304 with everything", withStatus(http.StatusNotModified)},
	{"200 with everything", withStatus(http.StatusOK)},
	{"404 with everything", withStatus(http.StatusNotFound)},
	{"101", status(http.StatusSwitchingProtocols)},
	{"500", func(w *writer, _ *http.Request) { http.Error(w.ResponseWriter, "no", http.StatusInternalServerError) }},
	{"redirect", func(w *writer, r *http.Request) { http.Redirect(w.ResponseWriter, r, "/b", http.StatusFound) }},
	{"twice", func(w *writer, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusOK)
		w.write("hello")
	}},
	{"after a write", func(w *writer, _ *http.Request) { w.write("hello"); w.WriteHeader(http.StatusAccepted) }},
	{"1xx too late", func(w *writer, _ *http.Request) { w.write("hello"); w.WriteHeader(http.StatusEarlyHints) }},

	{"no type", func(w *writer, _ *http.Request) { w.set("Content-Type"); w.write("<html>") }},
	{"an empty type", func(w *writer, _ *http.Request) { w.set("Content-Type", ""); w.write("<html>") }},
	{"a type", func(w *writer, _ *http.Request) { w.set("Content-Type", "text/x"); w.write("<html>") }},
	{"HTML", func(w *writer, _ *http.Request) { w.write("<html>") }},
	{"HTML, much", func(w *writer, _ *http.Request) { w.write("<html>" + strings.Repeat("x", large)) }},
	{"binary", func(w *writer, _ *http.Request) { w.write("\x00\x01\x02") }},
	{"PNG", func(w *writer, _ *http.Request) { w.write("\x89PNG\x0D\x0A\x1A\x0A") }},
	{"what it is, later writes tell", func(w *writer, _ *http.Request) { w.write("<ht"); w.write("ml>") }},
	{"what it is, later writes tell, flushed", func(w *writer, _ *http.Request) { w.write("<ht"); w.flush(); w.write("ml>") }},
	{"compressed", func(w *writer, _ *http.Request) { w.set("Content-Encoding", "gzip"); w.write("<html>") }},
	{"no coding", func(w *writer, _ *http.Request) { w.set("Content-Encoding", ""); w.write("<html>") }},
	{"length and HTML", func(w *writer, _ *http.Request) { w.set("Content-Length", "6"); w.write("<html>") }},

	{"flushed first", func(w *writer, _ *http.Request) { w.flush(); w.write("hello") }},
	{"flushed last", func(w *writer, _ *http.Request) { w.write("hello"); w.flush() }},
	{"flushed often", func(w *writer, _ *http.Request) {
		for range 3 {
			w.write("hello")
			w.flush()
			w.flush()
		}
	}},
	{"flushed only", func(w *writer, _ *http.Request) { w.flush() }},
	{"flushed, with length", func(w *writer, _ *http.Request) { w.set("Content-Length", "5"); w.flush(); w.write("hello") }},
	{"set after it was flushed", func(w *writer, _ *http.Request) { w.flush(); w.set("X", "y"); w.write("hello") }},
	{"set after the status", func(w *writer, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.set("X", "y")
		w.set("Connection", "close")
		w.write("hello")
	}},
	{"set after the body", func(w *writer, _ *http.Request) { w.write("hello"); w.set("X", "y"); w.set("Date", "never") }},

	{"103", func(w *writer, _ *http.Request) {
		w.set("Link", "</a>; rel=preload")
		w.set("Content-Length", "5")
		w.WriteHeader(http.StatusEarlyHints)
		w.set("Link", "</b>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.write("hello")
	}},
	{"100, 102", func(w *writer, _ *http.Request) {
		w.WriteHeader(http.StatusContinue)
		w.WriteHeader(http.StatusProcessing)
	}},

	{"close", func(w *writer, _ *http.Request) { w.set("Connection", "close"); w.write("hello") }},
	{"close, nothing written", func(w *writer, _ *http.Request) { w.set("Connection", "close") }},
	{"keep-alive", func(w *writer, _ *http.Request) { w.set("Connection", "keep-alive"); w.write("hello") }},
	{"close, late", func(w *writer, _ *http.Request) { w.set("Connection", "x", "close"); w.write("hello") }},

	{"trailer", func(w *writer, _ *http.Request) {
		w.set("Trailer", "X-Sum, x-more ,,", "X-Never")
		w.write("hello")
		w.set("X-Sum", "1")
		w.set("X-More", "2", "3")
		w.set("X-Other", "4")
	}},
	{"no trailer", func(w *writer, _ *http.Request) { w.set("Trailer", ""); w.write("hello") }},
	{"trailer, flushed", func(w *writer, _ *http.Request) {
		w.set("Trailer", "X-Sum")
		w.write("hello")
		w.flush()
		w.set("X-Sum", "1")
	}},
	{"trailer, set first", func(w *writer, _ *http.Request) {
		w.set("Trailer", "X-Sum")
		w.set("X-Sum", "1")
		w.write("hello")
		w.set("X-Sum", "2")
	}},
	{"trailer, nothing written", func(w *writer, _ *http.Request) { w.set("Trailer", "X-Sum"); w.set("X-Sum", "1") }},
	{"trailer and length", func(w *writer, _ *http.Request) {
		w.set("Trailer", "X-Sum")
		w.set("Content-Length", "5")
		w.write("hello")
		w.set("X-Sum", "1")
	}},
	{"trailer that must not be one, flushed", func(w *writer, _ *http.Request) {
		w.set("Trailer", "Content-Length, X-Sum, Transfer-Encoding, Trailer, a b")
		w.write("hello")
		w.flush()
		w.set("Content-Length", "9")
		w.set("X-Sum", "1")
		w.set("a b", "1")
	}},
	{"late trailer, flushed", func(w *writer, _ *http.Request) { w.write("hello"); w.flush(); w.set(http.TrailerPrefix+"X-Sum", "1") }},
	{"late trailer, much", func(w *writer, _ *http.Request) {
		w.write(strings.Repeat("x", some))
		w.set(http.TrailerPrefix+"X-Sum", "1")
	}},
	{"late trailer, set first", func(w *writer, _ *http.Request) {
		w.set(http.TrailerPrefix+"X-Sum", "1")
		w.write("hello")
		w.set(http.TrailerPrefix+"X-Sum", "2")
	}},
	{"late trailer, nothing written", func(w *writer, _ *http.Request) { w.set(http.TrailerPrefix+"X-Sum", "1") }},
	{"late trailer and length", func(w *writer, _ *http.Request) {
		w.set(http.TrailerPrefix+"X-Sum", "1")
		w.set("Content-Length", "5")
		w.write("hello")
	}},
	{"late trailer that is none", func(w *writer, _ *http.Request) {
		w.flush()
		w.set(http.TrailerPrefix+"a b", "1")
		w.set(http.TrailerPrefix, "1")
		w.set(http.TrailerPrefix+"X", "1\r\nY: 2")
	}},
	{"both trailers", func(w *writer, _ *http.Request) {
		w.set("Trailer", "X-A")
		w.flush()
		w.set("X-A", "1")
		w.set(http.TrailerPrefix+"X-B", "2")
	}},

	{"what it is, a large write tells", func(w *writer, _ *http.Request) {
		w.write("<ht")
		w.write("ml>" + strings.Repeat("x", 42) + strings.Repeat("\n", some))
	}},
	{"length and HTML, in two", func(w *writer, _ *http.Request) { w.set("Content-Length", "6"); w.write("<ht"); w.write("ml>") }},
	{"a status without a name", status(299)},
	{"an interim status without a name", status(150)},

	{"values", func(w *writer, _ *http.Request) {
		w.set("X-A", "a\r\nX-Evil: b", "a\nb", "a\rb", "\r\n", "")
		w.set("X-B", " a ", "\t a b \t", "\r\n a \n", "Jürgen \xff")
		w.set("X-C", "a\x00b")
		w.set("X-D")
	}},
	{"names", func(w *writer, _ *http.Request) {
		w.set("a b", "1")
		w.set("", "1")
		w.set("a:", "1")
		w.set("a\r\nX-Evil", "1")
		w.set("ä", "1")
		w.set("x-lower", "1")
		w.set("X-Lower", "2")
		w.set("content-type", "text/x")
		w.set("date", "x")
		w.write("hello")
	}},
	{"many fields", func(w *writer, _ *http.Request) {
		for i := range 40 {
			w.Header().Add(fmt.Sprintf("X-%d", i%30), fmt.Sprint(i))
		}
		w.write("hello")
	}},
	{"a large head", func(w *writer, _ *http.Request) { w.set("X", strings.Repeat("x", large)); w.write("hello") }},
	{"own date", func(w *writer, _ *http.Request) { w.set("Date", "Thu, 01 Jan 1970 00:00:00 GMT"); w.write("hello") }},
	{"no date", func(w *writer, _ *http.Request) { w.set("Date"); w.write("hello") }},
	{"no date and nothing", func(w *writer, _ *http.Request) { w.set("Date") }},

	{"abort", func(*writer, *http.Request) { panic(http.ErrAbortHandler) }},
	{"abort after a status", func(w *writer, _ *http.Request) { w.WriteHeader(http.StatusOK); panic(http.ErrAbortHandler) }},
	{"abort after a write", func(w *writer, _ *http.Request) { w.write("hello"); panic(http.ErrAbortHandler) }},
	{"abort after it was flushed", func(w *writer, _ *http.Request) { w.write("hello"); w.flush(); panic(http.ErrAbortHandler) }},
	{"abort after it was flushed, with length", func(w *writer, _ *http.Request) {
		w.set("Content-Length", "10")
		w.write("hello")
		w.flush()
		panic(http.ErrAbortHandler)
	}},
	{"abort after 103", func(w *writer, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints); panic(http.ErrAbortHandler) }},
	{"panic", func(*writer, *http.Request) { panic("oh") }},
	{"panic after it was flushed", func(w *writer, _ *http.Request) { w.write("hello"); w.flush(); panic(errors.New("oh")) }},
	{"too low a status", status(99)},
	{"too high a status", status(1000)},
	{"a panic of its own", func(w *writer, _ *http.Request) {
		defer func() { w.note("%v", recover()); w.write("hello") }()
		panic("oh")
	}},

	{"body read", func(w *writer, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.note("%q, %v", body, err)
		n, err := r.Body.Read(make([]byte, 1))
		w.note("%d, %v", n, err)
		w.write(string(body))
	}},
	{"body read after an answer", func(w *writer, r *http.Request) {
		w.write("hello")
		body, err := io.ReadAll(r.Body)
		w.note("%q, %v", body, err)
	}},
	{"body closed", func(w *writer, r *http.Request) {
		w.note("%v", r.Body.Close())
		w.write("hello")
	}},
	{"body closed and read", func(w *writer, r *http.Request) {
		w.note("%v", r.Body.Close())
		body, err := io.ReadAll(r.Body)
		if r.ContentLength > 0 {
			w.note("%q, %v", body, err)
		}
	}},
	{"body limited", func(w *writer, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w.ResponseWriter, r.Body, 100))
		w.note("%q, %v", body, err)
	}},
	{"the controller", func(w *writer, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // net/http would do so, but for full duplex
		c := http.NewResponseController(w.ResponseWriter)
		at := time.Now().Add(time.Minute)
		w.note("%v, %v, %v", c.SetReadDeadline(at), c.SetWriteDeadline(at), c.EnableFullDuplex())
		w.write("hello")
	}},
	{"too late to write", func(w *writer, _ *http.Request) {
		w.set("Content-Length", "5")
		w.note("%v", http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0)))
		w.write("hello")
		w.note("late: %v", errors.Is(http.NewResponseController(w.ResponseWriter).Flush(), os.ErrDeadlineExceeded))
	}},
}

func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	ours, theirs := sides(t)
	for _, test := range scripts {
		for _, raw := range asked {
			got, want := ours.ask(t, raw, test.do), theirs.ask(t, raw, test.do)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %q: -net/http +ours\n%s", test.name, raw, diff)
			}
		}
	}
}

const (
	ok   = "HTTP/1.1 200 OK\n"
	text = "Content-Type: text/plain; charset=utf-8\n"
	now  = "Date: now\n"
	five = ok + "Content-Length: 5\n" + text + now
)

// These are answered in another way than net/http does, and why.
var exceptions = []struct {
	name string
	do   script
	why  string
	to   int    // the first of asked whose answer differs
	want string // in answer to that
}{
	{"other connection", func(w *writer, _ *http.Request) { w.set("Connection", "close, x-y"); w.write("hello") },
		"what the handler says of the connection gives way to its end",
		2, ok + "Connection: close\n" + five[len(ok):] + "[5 bytes] \"hello\"\n[closed]\n"},
	{"another connection, to be closed", func(w *writer, _ *http.Request) {
		w.set("Connection", "upgrade")
		w.set("Upgrade", "x")
		w.WriteHeader(http.StatusSwitchingProtocols)
	},
		"the same; nobody switches protocols here",
		2, "HTTP/1.1 101 Switching Protocols\nConnection: close\nDate: now\nUpgrade: x\n[0 bytes] \"\"\n[closed]\n"},
	{"length with a sign", told("+5", 5), "net/http sends what clients refuse", 0, five + "[5 bytes] \"xxxxx\"\n[open: again]\n"},
	{"negative length", told("-5", 5), "it is as if it were not there", 0, five + "[5 bytes] \"xxxxx\"\n[open: again]\n"},
	{"invalid length", told("five", 5), "the same", 0, five + "[5 bytes] \"xxxxx\"\n[open: again]\n"},
	{"invalid length, HEAD", told("five", 5), "the same; net/http sends it", 1, five + "[0 bytes] \"\"\n[open: again]\n"},
	{"empty length", told("", 5), "the same", 0, five + "[5 bytes] \"xxxxx\"\n[open: again]\n"},
	{"no length", func(w *writer, _ *http.Request) { w.set("Content-Length"); w.write("hello") }, "the same",
		0, five + "[5 bytes] \"hello\"\n[open: again]\n"},
	{"two lengths", func(w *writer, _ *http.Request) { w.set("Content-Length", "5", "6"); w.write("hello") }, "net/http sends both",
		0, five + "[5 bytes] \"hello\"\n[open: again]\n"},
	{"length twice", func(w *writer, _ *http.Request) { w.set("Content-Length", "5", "5"); w.write("hello") }, "net/http sends both",
		0, five + "[5 bytes] \"hello\"\n[open: again]\n"},

	{"chunked", func(w *writer, _ *http.Request) { w.set("Transfer-Encoding", "chunked"); w.write("hello") },
		"how a body is sent is not for handlers to say", 0, five + "[5 bytes] \"hello\"\n[open: again]\n"},
	{"chunked and length", func(w *writer, r *http.Request) { w.set("Transfer-Encoding", "chunked"); told("5", 5)(w, r) },
		"the same", 0, five + "[5 bytes] \"xxxxx\"\n[open: again]\n"},
	{"identity", func(w *writer, _ *http.Request) { w.set("Transfer-Encoding", "identity"); w.write("hello") },
		"the same", 0, five + "[5 bytes] \"hello\"\n[open: again]\n"},
	{"another coding", func(w *writer, _ *http.Request) { w.set("Transfer-Encoding", "gzip"); w.write("hello") },
		"the same; net/http sends what clients refuse", 0, five + "[5 bytes] \"hello\"\n[open: again]\n"},

	{"late trailer", func(w *writer, _ *http.Request) { w.write("hello"); w.set(http.TrailerPrefix+"X-Sum", "1") },
		"net/http loses it if the body is small and not flushed",
		0, ok + text + now + "Transfer-Encoding: chunked\n[5 bytes] \"hello\"\nX-Sum: 1\n[open: again]\n"},
	{"trailer that must not be one", func(w *writer, _ *http.Request) { w.set("Trailer", "Content-Length"); w.write("hello") },
		"there is nothing to be sent behind the body",
		0, strings.Replace(five, now, now+"Trailer: Content-Length\n", 1) + "[5 bytes] \"hello\"\n[open: again]\n"},
	{"trailer twice", func(w *writer, _ *http.Request) { w.set("Trailer", "X-A, x-a"); w.write("hello"); w.set("X-A", "1") },
		"it is sent once",
		0, ok + text + now + "Trailer: X-A, x-a\nTransfer-Encoding: chunked\n[5 bytes] \"hello\"\nX-A: 1\n[open: again]\n"},

	{"abort after much", func(w *writer, _ *http.Request) { w.write(strings.Repeat("x", some)); panic(http.ErrAbortHandler) },
		"what waits to be sent is not sent any more", 0, "[no answer]\n[closed]\n"},
	{"full duplex", func(w *writer, _ *http.Request) {
		_ = http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
		w.write("hello")
	},
		"the body has come, and keeps nobody from using the connection again",
		4, five + "[5 bytes] \"hello\"\n[open: again]\n"},
}

func TestExceptions(t *testing.T) {
	ours, theirs := sides(t)
	for _, test := range exceptions {
		raw := asked[test.to]
		got, not := ours.ask(t, raw, test.do), theirs.ask(t, raw, test.do)
		if diff := cmp.Diff(test.want, got.Answer); diff != "" {
			t.Errorf("%s (%s): %q: -want +got\n%s", test.name, test.why, raw, diff)
		}
		if got.Answer == not.Answer {
			t.Errorf("%s: %q: it is no exception any more", test.name, raw)
		}
	}
}

// Handlers do the oddest things.
func TestAnswersOfRandomHandlers(t *testing.T) {
	ours, theirs := sides(t)
	for seed := range uint64(400) {
		raw := asked[seed%uint64(len(asked))]
		do := func(w *writer, _ *http.Request) {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 1 + random.IntN(6) {
				doAnything(w, random)
			}
		}
		got, want := ours.ask(t, raw, do), theirs.ask(t, raw, do)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: %q: -net/http +ours\n%s", seed, raw, diff)
			return
		}
	}
}

// doAnything does one thing in which there is no exception.
func doAnything(w *writer, random *rand.Rand) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	switch random.IntN(12) {
	case 0:
		w.WriteHeader([]int{103, 200, 200, 201, 204, 304, 404, 500}[random.IntN(8)])
	case 1:
		w.set("Content-Length", pick("0", "5", "10", "2048", "3000"))
	case 2:
		w.set("Trailer", "X-Sum", "X-More")
	case 3:
		w.set(pick("X-Sum", "X-More", "X-A"), pick("1", "2", " 3\n"))
	case 4:
		w.set("Connection", pick("close", "close", "keep-alive"))
	case 5:
		w.Header().Del(pick("Content-Length", "Trailer", "Connection", "Date", "Content-Type"))
	case 6:
		w.set(pick("Date", "Content-Encoding"), pick("", "x"))
	case 7:
		w.flush()
	default:
		w.write(strings.Repeat("x", []int{0, 1, 5, 5, 5, 10, 2047, 2048, 2049, 3000, 4096, large}[random.IntN(12)]))
	}
}
