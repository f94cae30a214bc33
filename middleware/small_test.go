package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	chi "github.com/go-chi/chi/v5"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/middleware"
)

// TestCanonicalAgreesWithTheRouter: chi routes by URL.RawPath. Without Canonical, an encoded path
// would miss the protected pattern and match the public one.
func TestCanonicalAgreesWithTheRouter(t *testing.T) {
	router := chi.NewRouter()
	serve := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }
	}
	router.Handle("/s:vc", serve("protected"))
	router.Handle("/s:vc/*", serve("protected"))
	router.Handle("/*", serve("public"))
	handler := middleware.Canonical()(router)
	tests := []struct {
		target string
		status int
		want   string
	}{
		{"/s:vc/x", 200, "protected"},
		{"/s%3Avc/x", 200, "protected"},
		{"/s%3avc", 200, "protected"},
		{"/s:vc/%20'x", 200, "protected"},
		{"http://h/s%3Avc/x", 200, "protected"},
		{"/other", 200, "public"},
		{"http://h", 200, "public"},
		{"/%73:vc/x", 400, ""},
		{"//s:vc/x", 400, ""},
		{"/x/../s:vc/x", 400, ""},
	}
	for _, test := range tests {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + test.target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != test.status || (test.want != "" && w.Body.String() != test.want) {
			t.Errorf("GET %s = %d %q, want %d %q", test.target, w.Code, w.Body, test.status, test.want)
		}
	}
}

func TestCanonicalURL(t *testing.T) {
	tests := []struct{ target, path, rawPath string }{
		{"/a", "/a", ""},
		{"/a'(b)", "/a'(b)", ""},
		{"/a%3Ab%25", "/a:b%", ""},
		{"/a%2fb%25", "/a/b%", "/a%2fb%25"},
		{"http://h?q", "/", ""},
	}
	for _, test := range tests {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + test.target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		x := new(exchange.Exchange)
		middleware.Canonical()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path != test.path || r.URL.RawPath != test.rawPath || x.Path.Raw == "" {
				t.Errorf("%s: URL has Path %q and RawPath %q, want %q and %q", test.target, r.URL.Path, r.URL.RawPath, test.path, test.rawPath)
			}
		})).ServeHTTP(httptest.NewRecorder(), r.WithContext(exchange.NewContext(r.Context(), x)))
	}
}

func TestNoEncodedSlash(t *testing.T) {
	for target, want := range map[string]int{"/a": 200, "/a%2fb": 400, "/a%3Ab": 200} {
		handler := middleware.Canonical()(middleware.NoEncodedSlash()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		x := new(exchange.Exchange)
		r := httptest.NewRequest("GET", target, nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(exchange.NewContext(r.Context(), x)))
		if w.Code != want {
			t.Errorf("GET %s = %d, want %d", target, w.Code, want)
		}
	}
}

func TestMethodsOfNobody(t *testing.T) {
	for _, method := range []string{"TRACE", "CONNECT"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/", nil)
		r.Method = method
		middleware.Canonical()(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("%s = %d, Allow %q, want 405 with Allow", method, w.Code, w.Header().Get("Allow"))
		}
	}
}

func TestDrainerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := middleware.NewDrainer()
		if err := d.Wait(t.Context()); err != nil {
			t.Errorf("Wait with nothing under way = %v", err)
		}
		handler := middleware.Drain(d)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-time.After(time.Hour)
		}))
		for range 3 {
			go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		synctest.Wait()
		if got := d.Running(); got != 3 {
			t.Errorf("Running() = %d, want 3", got)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait for less than it takes = %v, want the deadline", err)
		}
		start := time.Now()
		if err := d.Wait(t.Context()); err != nil || time.Since(start) != 59*time.Minute {
			t.Errorf("Wait = %v after %v, want nil after 59m", err, time.Since(start))
		}
	})
}

// TestDrainDecidesLate starts draining between the beginning of a request and
// that of its response, for every way to begin one.
func TestDrainDecidesLate(t *testing.T) {
	begin := map[string]func(http.ResponseWriter){
		"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		"Write":       func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
		"Flush":       func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"interim": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		},
	}
	for name, write := range begin {
		d := middleware.NewDrainer()
		server := httptest.NewServer(middleware.Drain(d)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			d.Start()
			write(w)
		})))
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if !response.Close {
			t.Errorf("%s: the connection stays open", name)
		}
		server.Close()
	}
}

// limited serves one endpoint that reads a form of limited size.
func limited(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(middleware.LimitBody(16<<10, 50*time.Millisecond)(problem.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) error {
			if err := r.ParseForm(); err != nil {
				return err
			}
			_, err := io.WriteString(w, r.PostForm.Get("a"))
			return err
		})))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestLimitBody(t *testing.T) {
	address := limited(t)
	const head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\n"
	tests := []struct {
		sent   string
		status int
		close  bool
		why    string
	}{
		{"Content-Length: 3\r\n\r\na=b", 200, false, "small"},
		{"Content-Length: 16384\r\n\r\na=" + strings.Repeat("x", 16382), 200, false, "at the limit"},
		{"Content-Length: 16385\r\n\r\na=" + strings.Repeat("x", 16383), 413, true, "over it"},
		{"Transfer-Encoding: chunked\r\n\r\n5000\r\n" + strings.Repeat("x", 0x5000) + "\r\n0\r\n\r\n", 413, true, "over it, in chunks"},
		{"Content-Length: 3\r\n\r\na", 408, true, "never whole"},
		{"Content-Length: 0\r\n\r\n", 200, false, "none"},
	}
	for _, test := range tests {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, head+test.sent); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", test.why, err)
		}
		if response.StatusCode != test.status || response.Close != test.close {
			t.Errorf("%s = %d, close %t, want %d, %t", test.why, response.StatusCode, response.Close, test.status, test.close)
		}
		conn.Close()
	}
}
