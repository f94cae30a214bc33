package middleware_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"snowgate/internal/problem"
	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
	"snowgate/internal/telemetry"
	"snowgate/middleware"
)

// recorded holds the arguments of Record.
type recorded struct {
	Route, Method string
	Status        int
}

// observe serves r by handler behind Observe and returns the response, the access
// line, and what was recorded.
func observe(t *testing.T, r *http.Request, trusted []netip.Prefix, handler http.HandlerFunc) (*httptest.ResponseRecorder, map[string]any, recorded) {
	t.Helper()
	var text bytes.Buffer
	var told recorded
	o := middleware.Observation{Log: zerolog.New(&text), TrustedProxies: trusted, Record: func(route, method string, status int, _ time.Duration) {
		told = recorded{route, method, status}
	}}
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				t.Fatalf("panic %v came through", v)
			}
		}()
		middleware.Observe(o)(handler).ServeHTTP(w, r)
	}()
	var line map[string]any
	if err := json.Unmarshal(text.Bytes(), &line); err != nil {
		t.Fatalf("access line %q: %v, want exactly one", text.String(), err)
	}
	return w, line, told
}

func TestObserve(t *testing.T) {
	r := httptest.NewRequest("GET", "/orders/42?access_token=secret-in-query", nil)
	r.Header.Set("User-Agent", "test/1")
	w, line, told := observe(t, r, nil, func(w http.ResponseWriter, r *http.Request) {
		x := exchange.From(r.Context())
		x.Route, x.Client, x.TokenID, x.Upstream = "orders", "worker", "id", "http://orders"
		x.Path = canonical.Path{Raw: "/orders/42"}
		x.Cause = errors.New("a cause")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "tea")
	})
	id := w.Header().Get("X-Request-Id")
	delete(line, "duration_ms")
	want := map[string]any{
		"level": "info", "message": "request", "request_id": id, "method": "GET", "path": "/orders/42", "route": "orders",
		"status": 418.0, "bytes": 3.0, "remote": "192.0.2.1", "client": "worker", "token_id": "id",
		"upstream": "http://orders", "user_agent": "test/1", "cause": "a cause",
	}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("access line, -want +got\n%s", diff)
	}
	if want := (recorded{"orders", "GET", 418}); told != want {
		t.Errorf("recorded %+v, want %+v", told, want)
	}
	if len(id) != 32 {
		t.Errorf("X-Request-Id = %q, want 32 digits", id)
	}
}

// counter is the counter of a route.
type counter struct{ told recorded }

func (c *counter) Count(method string, status int, _ time.Duration) {
	c.told = recorded{Method: method, Status: status}
}

func TestObserveTellsTheCounter(t *testing.T) {
	var own counter
	_, _, told := observe(t, httptest.NewRequest("PUT", "/orders", nil), nil, func(w http.ResponseWriter, r *http.Request) {
		x := exchange.From(r.Context())
		x.Route, x.Counter = "orders", &own
		w.WriteHeader(http.StatusTeapot)
	})
	if want := (recorded{Method: "PUT", Status: 418}); own.told != want || told != (recorded{}) {
		t.Errorf("the counter was told %+v, and Record %+v, want %+v and nothing", own.told, told, want)
	}
}

func TestObserveStatus(t *testing.T) {
	tests := []struct {
		why             string
		handler         http.HandlerFunc
		logged, counted int
		aborted         bool
	}{
		{"nothing written is 200", func(http.ResponseWriter, *http.Request) {}, 200, 200, false},
		{"an interim response is not the response", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusForbidden)
		}, 403, 403, false},
		{"the first status counts", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			w.WriteHeader(http.StatusOK)
		}, 403, 403, false},
		{"an upgrade", func(_ http.ResponseWriter, r *http.Request) {
			exchange.From(r.Context()).Upgraded = true
		}, 101, 101, false},
		{"broken off by the service", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			exchange.From(r.Context()).Cause = problem.New(http.StatusBadGateway, "", errors.New("reset"))
			panic(http.ErrAbortHandler)
		}, 200, 502, true},
		{"broken off by the caller", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, 499, true},
	}
	for _, test := range tests {
		_, line, told := observe(t, httptest.NewRequest("GET", "/", nil), nil, test.handler)
		aborted := line["aborted"] == true
		if line["status"] != float64(test.logged) || told.Status != test.counted || aborted != test.aborted {
			t.Errorf("%s: logged %v, counted %d, aborted %t, want %d, %d, %t",
				test.why, line["status"], told.Status, aborted, test.logged, test.counted, test.aborted)
		}
	}
}

func TestObserveHidesSecrets(t *testing.T) {
	const token = "sgt_0ABCDEFGHIJ_tokenbody0123456789"
	tests := []struct {
		why   string
		edit  func(*http.Request)
		cause string
	}{
		{"token in the cause", func(*http.Request) {}, "malformed response " + token},
		{"credentials in the cause", func(r *http.Request) { r.Header.Set("Authorization", "Basic dXNlcjpzZWNyZXRz") }, "got dXNlcjpzZWNyZXRz"},
		{"two lines", func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer first-credential", "Bearer dXNlcjpzZWNyZXRz"}
		}, "dXNlcjpzZWNyZXRz first-credential"},
		{"token in the path", func(r *http.Request) { r.RequestURI = "/x/" + token }, ""},
		{"userinfo in a refused target", func(r *http.Request) { r.RequestURI = "http://user:dXNlcjpzZWNyZXRz@h/" }, ""},
		{"query", func(r *http.Request) { r.RequestURI = "/x?access_token=" + token }, ""},
		{"fragment", func(r *http.Request) { r.RequestURI = "/x#access_token=" + token }, ""},
		{"client secret in the user agent", func(r *http.Request) { r.Header.Set("User-Agent", "sgs_tokenbody0123456789") }, ""},
		{"parameter in the cause", func(*http.Request) {}, `Get "/?a&access_token=first-credential&b": no`},
	}
	for _, test := range tests {
		r := httptest.NewRequest("GET", "/", nil)
		test.edit(r)
		_, line, _ := observe(t, r, nil, func(w http.ResponseWriter, r *http.Request) {
			if test.cause != "" {
				problem.Write(w, r, errors.New(test.cause))
			}
		})
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"tokenbody", "dXNlcjpz", "first-credential"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s: access line %s", test.why, text)
			}
		}
	}
}

func TestObserveBoundsCallersText(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Method = strings.Repeat("M", 5000)
	r.RequestURI = "/" + strings.Repeat("p", 5000)
	r.Header.Set("User-Agent", strings.Repeat("é", 5000))
	_, line, told := observe(t, r, nil, func(http.ResponseWriter, *http.Request) {})
	for name, limit := range map[string]int{"method": 40, "path": 520, "user_agent": 260} {
		if text, _ := line[name].(string); len(text) > limit || text == "" {
			t.Errorf("%s is logged with %d bytes, want at most %d", name, len(text), limit)
		}
	}
	metrics := telemetry.New("test", "test")
	metrics.Request(told.Route, told.Method, told.Status, 0)
	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if text := w.Body.String(); !strings.Contains(text, `method="other"`) || strings.Contains(text, "MM") {
		t.Errorf("method %.20q is not counted as other", told.Method)
	}
}

func TestRequestID(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	tests := []struct {
		sent    []string
		trusted []netip.Prefix
		kept    bool
		why     string
	}{
		{[]string{"abc-1.2_3"}, loopback, true, "a trusted proxy's"},
		{[]string{"abc"}, nil, false, "a stranger's"},
		{[]string{"abc"}, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, false, "a stranger's"},
		{[]string{"abc", "def"}, loopback, false, "two"},
		{[]string{""}, loopback, false, "empty"},
		{[]string{"a b"}, loopback, false, "a space"},
		{[]string{"a\"b"}, loopback, false, "a quote"},
		{[]string{strings.Repeat("a", 129)}, loopback, false, "too long"},
	}
	for _, test := range tests {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["X-Request-Id"] = test.sent
		w, _, _ := observe(t, r, test.trusted, func(http.ResponseWriter, *http.Request) {})
		got := w.Header()["X-Request-Id"]
		if len(got) != 1 || (got[0] == test.sent[0]) != test.kept || got[0] == "" {
			t.Errorf("X-Request-Id %.20q: got %q, want it kept: %t (%s)", test.sent, got, test.kept, test.why)
		}
	}
}

func TestPeer(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/10")}
	tests := []struct {
		remote  string
		trusted bool
		why     string
	}{
		{"10.1.2.3:5", true, ""},
		{"[::ffff:10.1.2.3]:5", true, "IPv4 on an IPv6 socket"},
		{"[fe80::1%eth0]:5", true, "a zone does not matter"},
		{"11.1.2.3:5", false, ""},
		{"@", false, "a Unix socket"},
		{"", false, "nothing"},
	}
	for _, test := range tests {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = test.remote
		observe(t, r, trusted, func(_ http.ResponseWriter, r *http.Request) {
			if got := exchange.From(r.Context()).PeerTrusted; got != test.trusted {
				t.Errorf("peer %q trusted = %t, want %t (%s)", test.remote, got, test.trusted, test.why)
			}
		})
	}
}

func TestRecover(t *testing.T) {
	recovering := middleware.Recover()
	w, line, told := observe(t, httptest.NewRequest("GET", "/", nil), nil, func(w http.ResponseWriter, r *http.Request) {
		recovering(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "half=done")
			w.Header().Set("Content-Encoding", "gzip")
			panic("with sgt_tokenbody0123 in it")
		})).ServeHTTP(w, r)
	})
	if w.Code != 500 || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Set-Cookie") != "" ||
		w.Header().Get("Content-Encoding") != "" || w.Header().Get("X-Request-Id") == "" {
		t.Errorf("response to a panic = %d %v", w.Code, w.Header())
	}
	if strings.Contains(w.Body.String(), "panic") {
		t.Errorf("the response tells about the panic: %s", w.Body)
	}
	cause, _ := line["cause"].(string)
	stack, _ := line["stack"].(string)
	if !strings.Contains(cause, "panic in handler: a value of type string") || !strings.Contains(stack, "TestRecover") || told.Status != 500 {
		t.Errorf("access line %v, want the panic, its stack and no secret", line)
	}
}

func TestRecoverBreaksOffWhatHasBegun(t *testing.T) {
	recovering := middleware.Recover()
	tests := []struct {
		why     string
		handler http.HandlerFunc
		counted int
	}{
		{"written", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "half"); panic("x") }, 500},
		{"upgraded", func(_ http.ResponseWriter, r *http.Request) { exchange.From(r.Context()).Upgraded = true; panic("x") }, 101},
		{"abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 499},
	}
	for _, test := range tests {
		came := false
		_, _, told := observe(t, httptest.NewRequest("GET", "/", nil), nil, func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if v := recover(); v != nil {
					came = v == http.ErrAbortHandler
					panic(v)
				}
			}()
			recovering(test.handler).ServeHTTP(w, r)
		})
		if !came || told.Status != test.counted {
			t.Errorf("%s: aborted %t, counted %d, want an abort and %d", test.why, came, told.Status, test.counted)
		}
	}
}

// TestObserveRemote: the access line has the peer and, if a trusted proxy names another address,
// the caller.
func TestObserveRemote(t *testing.T) {
	for _, trusted := range [][]netip.Prefix{nil, {netip.MustParsePrefix("192.0.2.0/24")}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Forwarded-For", "198.51.100.7")
		var caller netip.Addr
		_, line, _ := observe(t, r, trusted, func(_ http.ResponseWriter, r *http.Request) {
			caller = exchange.From(r.Context()).Remote
		})
		want, logged := "192.0.2.1", any(nil)
		if trusted != nil {
			want, logged = "198.51.100.7", "198.51.100.7"
		}
		if caller.String() != want || line["remote"] != "192.0.2.1" || line["forwarded_for"] != logged {
			t.Errorf("with trusted proxies %v: Remote = %v, access line %v", trusted, caller, line)
		}
	}
}

// TestObserveLater: a line that is written later has the same fields, and the time at which the
// request ended.
func TestObserveLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said zerolog.LogObjectMarshaler
		var level zerolog.Level
		o := middleware.Observation{Later: func(l zerolog.Level, fields zerolog.LogObjectMarshaler) bool {
			level, said = l, fields
			return true
		}}
		r := httptest.NewRequest("GET", "/orders/42", nil)
		middleware.Observe(o)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(7 * time.Millisecond)
			w.WriteHeader(http.StatusBadGateway)
		})).ServeHTTP(httptest.NewRecorder(), r)
		ended := time.Now()
		time.Sleep(time.Hour)
		var text bytes.Buffer
		logger := zerolog.New(&text)
		logger.WithLevel(level).EmbedObject(said).Msg("request")
		var line map[string]any
		if err := json.Unmarshal(text.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		delete(line, "request_id")
		want := map[string]any{
			"level": "error", "message": "request", "method": "GET", "path": "/orders/42", "route": "", "status": 502.0, "bytes": 0.0,
			"duration_ms": 7.0, "remote": "192.0.2.1", "time": ended.Format(zerolog.TimeFieldFormat),
		}
		if diff := cmp.Diff(want, line); diff != "" {
			t.Errorf("access line, -want +got\n%s", diff)
		}
	})
}

// TestPeerOfAConnection: all requests of a connection share one Peer, whose address was parsed
// once.
func TestPeerOfAConnection(t *testing.T) {
	seen := make(chan *exchange.Peer, 2)
	server := httptest.NewUnstartedServer(middleware.Observe(middleware.Observation{})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- exchange.From(r.Context()).Peer
	})))
	server.Config.ConnContext = middleware.ConnContext
	server.Start()
	defer server.Close()
	for range 2 {
		response, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	first, second := <-seen, <-seen
	if first != second || first.Addr != netip.MustParseAddr("127.0.0.1") || first.Text != "127.0.0.1" {
		t.Errorf("the peer is %+v at %p, then %+v at %p", *first, first, *second, second)
	}
}

// TestReuse: the memory of a request is reused after its line is written, and only if nothing else
// refers to it.
func TestReuse(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*exchange.Exchange)
		want bool
	}{
		"nothing special":              {func(*exchange.Exchange) {}, true},
		"somebody else may know of it": {func(x *exchange.Exchange) { x.Unshared = false }, false},
		"broken off":                   {func(*exchange.Exchange) { panic(http.ErrAbortHandler) }, false},
	} {
		for _, later := range []bool{true, false} {
			var fields zerolog.LogObjectMarshaler
			var text bytes.Buffer
			logger := zerolog.New(&text)
			o := middleware.Observation{Log: logger, Record: func(_, method string, status int, _ time.Duration) {
				if method != http.MethodGet || status == 0 {
					t.Errorf("%s: recorded %q, %d", name, method, status)
				}
			}}
			if later {
				o.Later = func(_ zerolog.Level, said zerolog.LogObjectMarshaler) bool {
					fields = said
					return true
				}
			}
			var x *exchange.Exchange
			handler := middleware.Observe(o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				x = exchange.From(r.Context())
				x.Client, x.Unshared = "worker", true
				w.WriteHeader(http.StatusNoContent)
				test.end(x)
			}))
			func() {
				defer func() { _ = recover() }()
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
			}()
			if later {
				if x.Client == "" {
					t.Errorf("%s: the memory was given away before the line was made", name)
				}
				logger.Info().EmbedObject(fields).Msg("request")
			}
			if !strings.Contains(text.String(), `"client":"worker"`) {
				t.Errorf("%s, the line made later: %t: %s", name, later, text.String())
			}
			if reused := reflect.ValueOf(*x).IsZero(); reused != test.want {
				t.Errorf("%s, the line made later: %t: used again: %t, want %t", name, later, reused, test.want)
			}
		}
	}
}

// TestReuseWithoutALine: memory is reused even if nothing is logged.
func TestReuseWithoutALine(t *testing.T) {
	o := middleware.Observation{Later: func(zerolog.Level, zerolog.LogObjectMarshaler) bool { return false }}
	var x *exchange.Exchange
	middleware.Observe(o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x = exchange.From(r.Context())
		x.Client, x.Unshared = "worker", true
		w.WriteHeader(http.StatusNoContent)
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if !reflect.ValueOf(*x).IsZero() {
		t.Errorf("the memory of a request without a line is not used again: %+v", *x)
	}
}

// TestExchangeOfAConnection: over HTTP/1, the exchange needs no copy of the request, and nothing of
// a request remains on the connection after it has ended or was aborted.
func TestExchangeOfAConnection(t *testing.T) {
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	r := httptest.NewRequestWithContext(middleware.ConnContext(t.Context(), conn), http.MethodGet, "/", nil)
	for _, broken := range []bool{false, true} {
		handler := middleware.Observe(middleware.Observation{})(http.HandlerFunc(func(w http.ResponseWriter, got *http.Request) {
			if got != r {
				t.Error("the request was copied")
			}
			exchange.From(got.Context()).Client = "worker"
			if exchange.From(r.Context()).Client != "worker" {
				t.Error("the context carries another exchange at every look")
			}
			w.WriteHeader(http.StatusNoContent)
			if broken {
				panic(http.ErrAbortHandler)
			}
		}))
		func() {
			defer func() { _ = recover() }()
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}()
		if client := exchange.From(r.Context()).Client; client != "" {
			t.Errorf("broken off: %t: the connection still has the exchange of %s", broken, client)
		}
	}
}
