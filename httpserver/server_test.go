package httpserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/clientconn"
	"snowgate/httpserver"
)

// servedBy expects an answer with body, by somebody.
func (c *client) servedBy(by, body string) {
	c.t.Helper()
	if got := c.hears(body).Header.Get("X-Served"); got != by {
		c.t.Errorf("%q was served %s, want %s", body, got, by)
	}
}

// servedAgain expects that the next request is served here. It may be that net/http has read the
// first byte of one before it saw that nobody waits for that.
func (c *client) servedAgain() {
	c.t.Helper()
	for range 100 {
		c.says(get("/again"))
		if c.hears("GET /again ").Header.Get("X-Served") == plainly {
			return
		}
	}
	c.t.Error("the connection stays with net/http")
}

func TestOneAfterTheOther(t *testing.T) {
	c := dial(t, serve(t, tell, nil).address)
	for i := range 10 {
		c.says(get(fmt.Sprint("/", i)))
		c.servedBy(plainly, fmt.Sprintf("GET /%d ", i))
		c.says("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
		c.servedBy(plainly, "POST / hello")
	}
	c.says("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	c.servedBy(plainly, "GET / ")
	c.hearsTheEnd()
}

// Nothing of an answer gets into the next one, on whatever connection.
func TestAnswersKnowNothingOfEachOther(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/b" {
			return
		}
		for i := range 20 {
			w.Header().Set(fmt.Sprint("X-", i), "a")
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Content-Type", "text/x")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, strings.Repeat("a", 40<<10))
	}, nil)
	for range 10 {
		c := dial(t, s.address)
		for range 10 {
			c.says(get("/a"))
			c.hears(strings.Repeat("a", 40<<10))
			c.says(get("/b"))
			answer := c.hears("")
			answer.Header.Del("Date")
			if answer.StatusCode != http.StatusOK || len(answer.Header) != 1 || answer.ContentLength != 0 {
				t.Fatalf("the answer to /b is %v", answer)
			}
		}
	}
}

// A request in two pieces is answered as in one. If the second comes at once, it is served here.
func TestRequestsInPieces(t *testing.T) {
	const plain = "POST /a?b HTTP/1.1\r\nHost: x\r\nX-Y: z\r\nContent-Length: 5\r\n\r\nhello"
	const chunked = "POST /a?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	for _, test := range []struct {
		raw   string
		after time.Duration
		by    string
	}{
		{plain, 0, plainly},
		{plain, time.Millisecond, plainly},
		{plain, time.Second, byOther},
		{chunked, 0, byOther},
		{chunked, time.Second, byOther},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, connect := servePipes(t, tell, nil)
			for cut := 1; cut < len(test.raw); cut++ {
				c := connect()
				for range 2 {
					c.says(test.raw[:cut])
					time.Sleep(test.after)
					c.says(test.raw[cut:])
					c.servedBy(test.by, "POST /a?b hello")
				}
				_ = c.Close()
				if t.Failed() {
					t.Logf("cut at %d, %v between", cut, test.after)
					break
				}
			}
			s.stop()
		})
	}
}

// What does not fit into what is read in one go is served here all the same, up to 16 KiB.
func TestLargeRequests(t *testing.T) {
	c := dial(t, serve(t, tell, nil).address)
	for _, size := range []int{4000, 4050, 4096, 5000, 9000, 16_300} {
		long := strings.Repeat("x", size)
		post := fmt.Sprintf("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, long)
		for _, test := range []struct{ raw, body string }{
			{post, "POST /a " + long},
			{"GET /a HTTP/1.1\r\nHost: x\r\nX: " + long + "\r\n\r\n", "GET /a "},
			{get("/" + long), "GET /" + long + " "},
		} {
			c.says(test.raw + get("/b") + test.raw)
			c.servedBy(plainly, test.body)
			c.servedBy(plainly, "GET /b ")
			c.servedBy(plainly, test.body)
		}
	}
}

// On sockets, nobody knows which pieces the server sees.
func TestRequestsInPiecesOnSockets(t *testing.T) {
	s := serve(t, tell, nil)
	const raw = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
	c := dial(t, s.address)
	for cut := 1; cut < len(raw); cut++ {
		c.says(raw[:cut])
		c.says(raw[cut:])
		c.hears("POST /a hello")
	}
	for i := range raw {
		c.says(raw[i : i+1])
	}
	c.hears("POST /a hello")
	c.servedAgain()
}

const (
	chunked = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	oldOne  = "GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
)

// What is asked at once is answered in that order, whoever does that.
func TestPipelined(t *testing.T) {
	s := serve(t, tell, nil)
	kinds := []struct{ raw, want string }{
		{get("/a"), "GET /a "},
		{"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\r\n\r\n", "POST /b \r\n\r\n"},
		{chunked, "POST /c hello"},
		{oldOne, "GET /old "},
		{"PUT /d HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat("x", 5000), "PUT /d " + strings.Repeat("x", 5000)},
		{"PUT /d HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("x", 20_000), "PUT /d " + strings.Repeat("x", 20_000)},
		{"M1 /e HTTP/1.1\r\nHost: x\r\n\r\n", "M1 /e "},
	}
	c := dial(t, s.address)
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		var raw strings.Builder
		var want []string
		for range 2 + random.IntN(20) {
			kind := kinds[min(random.IntN(2*len(kinds)), len(kinds)+1)%len(kinds)]
			raw.WriteString(kind.raw)
			want = append(want, kind.want)
		}
		var sending sync.WaitGroup
		sending.Go(func() { _, _ = io.WriteString(c, raw.String()) })
		for _, body := range want {
			c.hears(body)
		}
		sending.Wait()
	}
	c.servedAgain()
}

func TestManyPlainRequestsAtOnce(t *testing.T) {
	c := dial(t, serve(t, tell, nil).address)
	const requests = 1000 // several times what the server reads in one go
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range requests {
			_, _ = io.WriteString(c, get(fmt.Sprint("/", i)))
		}
	})
	for i := range requests {
		c.hears(fmt.Sprintf("GET /%d ", i))
	}
	sending.Wait()
}

// What is not plain is answered by net/http, or refused by it.
func TestOddRequestsAreLeft(t *testing.T) {
	const refused = ""
	long := strings.Repeat("x", 20_000)
	s := serve(t, tell, nil)
	for _, test := range []struct {
		name, raw string
		status    int
		body      string
		open      bool
	}{
		{"HTTP/1.0", "GET /a HTTP/1.0\r\nHost: x\r\n\r\n", 200, "GET /a ", false},
		{"HTTP/1.0, kept alive", oldOne, 200, "GET /old ", true},
		{"chunks", chunked, 200, "POST /c hello", true},
		{"a big body", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n" + long, 200, "POST /a " + long, true},
		{"a body that is just too big", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 16333\r\n\r\n" + long[:16333], 200, "POST /a " + long[:16333], true},
		{"a big head", "GET /a HTTP/1.1\r\nHost: x\r\nX: " + long + "\r\n\r\n", 200, "GET /a ", true},
		{"a big target", "GET /" + long + " HTTP/1.1\r\nHost: x\r\n\r\n", 200, "GET /" + long + " ", true},
		{"another method", "M1 /a HTTP/1.1\r\nHost: x\r\n\r\n", 200, "M1 /a ", true},
		{"absolute form", "GET http://y/a HTTP/1.1\r\nHost: x\r\n\r\n", 200, "GET http://y/a ", true},
		{"bare LF", "GET /a HTTP/1.1\nHost: x\n\n", 200, "GET /a ", true},
		{"a folded line", "GET /a HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n\r\n", 200, "GET /a ", true},
		{"Connection: close, in a list", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: x, close\r\n\r\n", 200, "GET /a ", false},
		{"no host", "GET /a HTTP/1.1\r\n\r\n", 400, refused, false},
		{"two hosts", "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, refused, false},
		{"two lengths", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400, refused, false},
		{"no length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello", 400, refused, false},
		{"space before the colon", "GET /a HTTP/1.1\r\nHost : x\r\n\r\n", 400, refused, false},
		{"NUL", "GET /a HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", 400, refused, false},
		{"not HTTP", "garbage all over\r\n\r\n", 400, refused, false},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, refused, false},
		{"another coding", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, refused, false},
		{"another expectation", "POST /a HTTP/1.1\r\nHost: x\r\nExpect: pancakes\r\n\r\n", 417, refused, false},
		{"HTTP/3", "GET /a HTTP/3.0\r\nHost: x\r\n\r\n", 505, refused, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 2 { // as the first request of a connection, and as a later one
				c := dial(t, s.address)
				c.says(test.raw)
				c.expects(test.status, test.body)
				if test.open {
					c.servedAgain()
					c.says(test.raw)
					c.expects(test.status, test.body)
					c.servedAgain()
				} else {
					c.hearsTheEnd()
				}
			}
		})
	}
}

// expects expects an answer of net/http. If body is empty, it has refused the request.
func (c *client) expects(status int, body string) {
	c.t.Helper()
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status || body != "" && string(got) != body {
		c.t.Fatalf("the answer is %d %q, %v, want %d %q", answer.StatusCode, got, err, status, body)
	}
	if by := answer.Header.Get("X-Served"); by != "" && by != byOther || (body != "") != (by != "") {
		c.t.Fatalf("served %q", by)
	}
}

func TestExpectedContinue(t *testing.T) {
	c := dial(t, serve(t, tell, nil).address)
	for range 2 {
		c.says("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		if line, err := c.in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("the answer is %q, %v", line, err)
		}
		_, _ = c.in.ReadString('\n')
		c.says("hello")
		c.servedBy(byOther, "POST /a hello")
		c.servedAgain()
	}
}

func TestUpgrade(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			tell(w, r)
			return
		}
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.CopyN(conn, in, 10)
	}, nil)
	c := dial(t, s.address)
	c.says(get("/a"))
	c.servedBy(plainly, "GET /a ")
	c.says("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly")
	c.hears("")
	c.says("later")
	if got, err := io.ReadAll(c.in); string(got) != "earlylater" || err != nil {
		t.Errorf("the echo is %q, %v", got, err)
	}
}

func TestUnencryptedHTTP2(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Proto, " ", who(r))
	}, nil)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for range 3 {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address, nil)
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if want := "HTTP/2.0 " + byOther; string(body) != want || err != nil {
			t.Errorf("the answer is %q, %v, want %q", body, err, want)
		}
	}
}

// The preface of HTTP/2 may come in pieces as well.
func TestPrefaceInPieces(t *testing.T) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for cut := 1; cut < len(preface); cut++ {
		synctest.Test(t, func(t *testing.T) {
			s, connect := servePipes(t, tell, nil)
			c := connect()
			go func() {
				_, _ = io.WriteString(c, preface[:cut])
				time.Sleep(time.Second)
				_, _ = io.WriteString(c, preface[cut:]+settings)
			}()
			head := make([]byte, 9)
			if _, err := io.ReadFull(c.in, head); err != nil || head[3] != 4 {
				t.Errorf("cut at %d: %q, %v, want settings", cut, head, err)
			}
			_ = c.Close()
			s.stop()
		})
	}
}

// What is no connection of this package's kind is net/http's.
func TestOtherConnections(t *testing.T) {
	s := newServed(tell, nil)
	l := listen(t)
	s.ends.Go(func() { _ = s.Serve(l) })
	s.ends.Go(func() { _ = s.others.Serve(s.Others()) })
	defer s.stop()
	c := dial(t, l.Addr().String())
	c.says(get("/a"))
	c.servedBy(byOther, "GET /a ")
}

// The context of a request ends soon after its client has left.
func TestClientThatLeavesIsNoticed(t *testing.T) {
	began, left := make(chan struct{}), make(chan error)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		left <- context.Cause(r.Context())
	}, nil)
	c := dial(t, s.address)
	c.says(get("/a"))
	happens(t, began, "the request is served")
	_ = c.Close()
	if err := happens(t, left, "the client is missed"); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended by %v", err)
	}
}

// While it is looked whether the client is there, nothing of the next request gets lost, and while
// it is there, the context goes on. It has the values of the base.
func TestNextRequestDuringALongOne(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		s, connect := servePipes(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Context().Value(key{}) != "value" || r.RemoteAddr != "pipe" {
				t.Errorf("%s: another base, or address: %v", r.RequestURI, r.RemoteAddr)
			}
			time.Sleep(time.Minute / 2)
			if err := r.Context().Err(); err != nil {
				t.Errorf("%s: %v", r.RequestURI, err)
			}
			tell(w, r)
		}, func(o *httpserver.Options) { o.BaseContext = context.WithValue(context.Background(), key{}, "value") })
		c := connect()
		go func() {
			for i := range 5 {
				_, _ = io.WriteString(c, get(fmt.Sprint("/", i)))
				time.Sleep(time.Second)
			}
		}()
		for i := range 5 {
			c.hears(fmt.Sprintf("GET /%d ", i))
		}
		_ = c.Close()
		s.stop()
	})
}

// The context of a connection ends with it, also if its client was never looked for.
func TestContextEndsWithTheConnection(t *testing.T) {
	contexts := make(chan context.Context, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { contexts <- r.Context() }, nil)
	c := dial(t, s.address)
	c.says(get("/"))
	c.hears("")
	ctx := happens(t, contexts, "the request is served")
	_ = c.Close()
	happens(t, ctx.Done(), "the context ends")
}

// A connection on which nothing is asked is closed in time.
func TestTimeouts(t *testing.T) {
	const first, idle = 7 * time.Second, 40 * time.Second
	for _, test := range []struct {
		name string
		says string
		want time.Duration
	}{
		{"nothing ever", "", first},
		{"nothing more", get("/"), idle},
		{"nothing more after two", get("/") + get("/"), idle},
		// After 50 ms, the limit of net/http begins.
		{"half a request", "GET / HT", 50*time.Millisecond + time.Minute},
		{"half of a second one", get("/") + "GET / HT", 50*time.Millisecond + time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, connect := servePipes(t, func(http.ResponseWriter, *http.Request) {}, func(o *httpserver.Options) {
					o.FirstTimeout, o.IdleTimeout, o.RestAfter = first, idle, time.Second
				})
				c := connect()
				begin := time.Now()
				if test.says != "" {
					go func() { _, _ = io.WriteString(c, test.says) }()
				}
				if _, err := io.Copy(io.Discard, c.in); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took != test.want {
					t.Errorf("closed after %v, want %v", took, test.want)
				}
				s.stop()
			})
		})
	}
}

// A connection goes to rest after a while, and is as good as new after that.
func TestRest(t *testing.T) {
	s := serve(t, tell, func(o *httpserver.Options) { o.RestAfter = time.Nanosecond })
	c := dial(t, s.address)
	for i := range 5 {
		c.says(get(fmt.Sprint("/", i)))
		c.servedBy(plainly, fmt.Sprintf("GET /%d ", i))
		if n := s.rest.Count(); n < uint64(i) {
			t.Errorf("it has rested %d times before the answer to request %d", n, i)
		}
	}
	c.says(chunked)
	c.servedBy(byOther, "POST /c hello")
	c.servedAgain()
	_ = c.CloseWrite()
	c.hearsTheEnd()
}

// CloseWrite ends what the client sends.
func (c *client) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// At rest, the limit for waiting is the same.
func TestIdleTimeoutAtRest(t *testing.T) {
	s := serve(t, tell, func(o *httpserver.Options) {
		o.RestAfter, o.IdleTimeout = time.Nanosecond, 50*time.Millisecond
	})
	c := dial(t, s.address)
	c.says(get("/a"))
	c.hears("GET /a ")
	c.hearsTheEnd()
	if n := s.rest.Count(); n != 1 {
		t.Errorf("it has rested %d times, want 1", n)
	}
}

// A connection on which nothing was ever asked does not rest.
func TestFirstTimeoutOnASocket(t *testing.T) {
	s := serve(t, tell, func(o *httpserver.Options) { o.FirstTimeout = time.Millisecond })
	dial(t, s.address).hearsTheEnd()
	if n := s.rest.Count(); n != 0 {
		t.Errorf("it has rested %d times, want 0", n)
	}
}

// A connection that cannot rest any more waits as if it had not been to.
func TestNoRestAfterRetire(t *testing.T) {
	s := serve(t, tell, func(o *httpserver.Options) { o.RestAfter = time.Nanosecond })
	s.rest.Retire(t.Context())
	c := dial(t, s.address)
	for range 3 {
		c.says(get("/a"))
		c.servedBy(plainly, "GET /a ")
	}
	if n := s.rest.Count(); n != 0 {
		t.Errorf("it has rested %d times, want 0", n)
	}
}

// A client that does not read what it has asked for is given up.
func TestWriteTimeout(t *testing.T) {
	const first, limit = 3 * time.Second, 20 * time.Second
	for _, handlerSets := range []time.Duration{0, 5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var fault error
			ended := make(chan struct{})
			s, connect := servePipes(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				if handlerSets > 0 {
					_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(handlerSets))
				}
				_, fault = io.WriteString(w, strings.Repeat("x", 1<<20))
			}, func(o *httpserver.Options) { o.FirstTimeout, o.WriteTimeout = first, limit })
			c := connect()
			begin := time.Now()
			c.says(get("/"))
			<-ended
			least, most := limit, limit+first
			if handlerSets > 0 {
				least, most = handlerSets, handlerSets
			}
			if took := time.Since(begin); !errors.Is(fault, os.ErrDeadlineExceeded) || took < least || took > most {
				t.Errorf("Write ends after %v: %v, want between %v and %v", took, fault, least, most)
			}
			_, _ = io.Copy(io.Discard, c.in) // until the connection is closed
			s.stop()
		})
	}
}

// A deadline that a handler sets is for its own answer, and may be set by others than who writes.
func TestWriteDeadlineOfAHandler(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var setting sync.WaitGroup
		setting.Go(func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)) })
		_, _ = io.WriteString(w, strings.Repeat("x", 5000))
		_ = http.NewResponseController(w).Flush()
		setting.Wait()
		if r.URL.Path == "/last" {
			w.(http.Flusher).Flush()
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
		}
	}, nil)
	c := dial(t, s.address)
	for range 10 {
		c.says(get("/"))
		c.hears(strings.Repeat("x", 5000))
	}
	c.says(get("/last"))
	if answer, err := http.ReadResponse(c.in, nil); err != nil {
		t.Error(err)
	} else if body, err := io.ReadAll(answer.Body); len(body) != 5000 || err == nil {
		t.Errorf("%d bytes, %v, want 5000 and no end", len(body), err)
	}
}

func TestClose(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	s := newServed(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(began)
			<-r.Context().Done()
			close(ended)
		}
	}, nil)
	inner := listen(t)
	rest := clientconn.NewRest(inner.Addr())
	faults := make(chan error, 3)
	go func() { faults <- s.Serve(listener{inner, rest}) }()
	go func() { faults <- s.Serve(rest) }()
	go func() {
		conn, err := s.Others().Accept()
		if err == nil {
			t.Errorf("%v was accepted", conn)
		}
		faults <- err
	}()
	fresh, idle, busy := dial(t, inner.Addr().String()), dial(t, inner.Addr().String()), dial(t, inner.Addr().String())
	idle.says(get("/"))
	idle.hears("")
	busy.says(get("/wait"))
	happens(t, began, "the request is served")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	for range 3 {
		if err := happens(t, faults, "Serve and Accept end"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve or Accept = %v, want %v", err, net.ErrClosed)
		}
	}
	happens(t, ended, "the context ends")
	for _, c := range []*client{fresh, idle, busy} {
		c.hearsTheEnd()
	}
}

// A connection that nobody takes is closed with the server, of whatever kind it is.
func TestCloseWhileAConnectionIsLeft(t *testing.T) {
	for _, bare := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{}), rest: clientconn.NewRest(&net.TCPAddr{}), bare: bare}
			s := newServed(tell, nil)
			s.ends.Go(func() { _ = s.Serve(l) })
			near, far := net.Pipe()
			l.conns <- far
			c := newClient(t, near)
			if !bare {
				c.says(chunked)
			}
			synctest.Wait()
			_ = s.Close()
			c.hearsTheEnd()
			s.ends.Wait()
		})
	}
}

// A connection that net/http has is not closed.
func TestCloseDoesNotCloseThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := servePipes(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			tell(w, r)
		}, nil)
		c := connect()
		c.says(chunked)
		synctest.Wait()
		_ = s.Close()
		c.servedBy(byOther, "POST /c hello")
		_ = c.Close()
		s.stop()
	})
}

// The date is that of the answer.
func TestDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := servePipes(t, tell, nil)
		c := connect()
		for range 10 {
			c.says(get("/a"))
			if got, want := c.hears("GET /a ").Header.Get("Date"), time.Now().UTC().Format(http.TimeFormat); got != want {
				t.Errorf("Date is %q, want %q", got, want)
			}
			time.Sleep(400 * time.Millisecond)
		}
		_ = c.Close()
		s.stop()
	})
}

// late is a listener that returns a connection although it is closed.
type late struct {
	*pipes

	conn net.Conn
}

// Accept implements [net.Listener].
func (l *late) Accept() (net.Conn, error) {
	conn := l.conn
	l.conn = nil
	<-l.closed
	if conn == nil {
		return nil, net.ErrClosed
	}
	return l.rest.Wrap(conn), nil
}

func TestConnectionAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		l := &late{&pipes{closed: make(chan struct{}), rest: clientconn.NewRest(&net.TCPAddr{})}, far}
		s := newServed(tell, nil)
		s.ends.Go(func() { _ = s.Serve(l) })
		synctest.Wait()
		_ = s.Close()
		closed := time.Now()
		newClient(t, near).hearsTheEnd()
		if took := time.Since(closed); took > 0 {
			t.Errorf("it is closed after %v", took)
		}
		s.ends.Wait()
	})
}

// temporary is an error like that of having too many open files.
type temporary struct{ bool }

func (temporary) Error() string     { return "no more files" }
func (e temporary) Temporary() bool { return e.bool }

// failing is a listener that only fails.
type failing struct {
	*pipes

	faults []error
	at     []time.Duration // when it was asked
	begin  time.Time
}

// Accept implements [net.Listener].
func (f *failing) Accept() (net.Conn, error) {
	f.at = append(f.at, time.Since(f.begin))
	fault := f.faults[0]
	f.faults = f.faults[1:]
	if fault == nil {
		near, far := net.Pipe()
		_ = far.Close()
		return f.rest.Wrap(near), nil
	}
	return nil, fmt.Errorf("accept: %w", fault)
}

func TestTemporaryErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{pipes: &pipes{closed: make(chan struct{}), rest: clientconn.NewRest(&net.TCPAddr{})}, begin: time.Now()}
		f.faults = append(slices.Repeat([]error{temporary{true}}, 10), nil, temporary{true}, temporary{false})
		s := newServed(tell, nil)
		if err := s.Serve(f); !errors.Is(err, temporary{false}) {
			t.Errorf("Serve = %v, want %v", err, temporary{false})
		}
		var want []time.Duration
		var at time.Duration
		for _, pause := range []int{0, 5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000, 0, 5} {
			at += time.Duration(pause) * time.Millisecond
			want = append(want, at)
		}
		if !slices.Equal(f.at, want) {
			t.Errorf("Accept was called at %v, want %v", f.at, want)
		}
		if n := strings.Count(s.log.String(), "no more files"); n != 11 {
			t.Errorf("%d lines were logged, want 11:\n%s", n, s.log)
		}
		_ = s.Close()
	})
}

func TestCloseDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{pipes: &pipes{closed: make(chan struct{})}, begin: time.Now(), faults: slices.Repeat([]error{temporary{true}}, 10)}
		s := newServed(tell, nil)
		time.AfterFunc(12*time.Millisecond, func() { _ = s.Close() })
		if err := s.Serve(f); err == nil {
			t.Error("Serve = nil")
		}
		if took := time.Since(f.begin); took != 12*time.Millisecond {
			t.Errorf("Serve has ended after %v, want 12ms", took)
		}
	})
}

// A handler that ends its goroutine, or panics, ends the connection and nothing else.
func TestHandlersThatDoNotReturn(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/exit":
			runtime.Goexit()
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/panic":
			panic("oh no")
		}
		tell(w, r)
	}, nil)
	for range 3 {
		for _, path := range []string{"/exit", "/abort", "/panic"} {
			c := dial(t, s.address)
			c.says(get("/a"))
			c.servedBy(plainly, "GET /a ")
			c.says(get(path))
			c.hearsTheEnd()
		}
	}
	if logged := s.log.String(); strings.Count(logged, "panic serving") != 3 || strings.Count(logged, "oh no") < 3 {
		t.Errorf("logged:\n%s\nwant three panics", logged)
	}
}

// Clients that ask in all manners at once get their own answers.
func TestManyAtOnce(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		size := 10
		if r.Header.Get("X-Large") != "" {
			size = 5000
		}
		w.Header().Set("X-Served", who(r))
		_, _ = io.WriteString(w, r.URL.Path+" "+string(body)+strings.Repeat("x", size))
	}, func(o *httpserver.Options) { o.RestAfter = time.Millisecond })
	var asking sync.WaitGroup
	for i := range 40 {
		asking.Go(func() {
			if err := askRandomly(s.address, i); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	asking.Wait()
}

// askRandomly is a client.
func askRandomly(address string, number int) error {
	random := rand.New(rand.NewPCG(uint64(number), 0))
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(conn)
	for i := range 50 {
		path := fmt.Sprintf("/%d/%d", number, i)
		raw, body, size := "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", "", 10
		switch random.IntN(6) {
		case 0:
			body = "hello"
			raw = "POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
		case 1:
			body = "hello"
			raw = "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
		case 2:
			size = 5000
			raw = "GET " + path + " HTTP/1.1\r\nHost: x\r\nX-Large: 1\r\n\r\n"
		}
		cut := len(raw)
		if random.IntN(3) == 0 {
			cut = random.IntN(cut)
		}
		_, _ = io.WriteString(conn, raw[:cut])
		_, _ = io.WriteString(conn, raw[cut:])
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		want := path + " " + body + strings.Repeat("x", size)
		if got, err := io.ReadAll(answer.Body); err != nil || string(got) != want {
			return fmt.Errorf("%s: the answer is %.50q, %w", path, got, err)
		}
	}
	return nil
}

// A body that is closed is closed for io.Copy, too (Copy finds bytes.Reader.WriteTo).
func TestCopyOfAClosedBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, " ", errors.Is(err, http.ErrBodyReadAfterClose))
	}, nil)
	c := dial(t, s.address)
	c.says("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
	c.hears("0 true")
}

// http.Transport may read a body while httputil.ReverseProxy closes it. With -race.
func TestBodyIsClosedWhileItIsRead(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		read := make(chan struct{})
		go func() { defer close(read); _, _ = r.Body.Read(make([]byte, 3)) }()
		_ = r.Body.Close()
		<-read
	}, nil)
	c := dial(t, s.address)
	c.says("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
	c.hears("")
}

// The head of a request has to come within the time for that.
func TestSlowHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := servePipes(t, tell, func(o *httpserver.Options) { o.FirstTimeout = 10 * time.Second })
		s.others.ReadHeaderTimeout = 10 * time.Second
		c := connect()
		begin := time.Now()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for range 10_000 {
				if _, err := io.WriteString(c, "G"); err != nil {
					return
				}
				time.Sleep(40 * time.Millisecond)
			}
		}()
		_, _ = io.Copy(io.Discard, c.in)
		if took := time.Since(begin); took > 21*time.Second {
			t.Errorf("closed after %v", took)
		}
		_ = c.Close()
		<-sent
		s.stop()
	})
}

// RFC 9112 §2.2: net/http lets an empty line pass that follows a POST on the same connection.
func TestEmptyLineAfterPost(t *testing.T) {
	c := dial(t, serve(t, tell, nil).address)
	c.says("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\r\n")
	c.hears("POST / hello")
	c.says(get("/a"))
	c.hears("GET /a ")
}

// A deadline for an answer of ours is none for those of net/http, which may have no WriteTimeout.
func TestWriteDeadlineStays(t *testing.T) {
	s := newServed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "0")
		_ = http.NewResponseController(w).Flush()
		if who(r) == plainly {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
		}
	}, nil)
	s.others.WriteTimeout = 0
	s.start(t)
	c := dial(t, s.address)
	c.says(get("/"))
	c.hears("")
	c.says(oldOne)
	c.hears("")
}

// The same for reading: HTTP/2 in pieces, without ReadHeaderTimeout. The pause is longer than a request is waited for.
func TestReadDeadlineStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connect := servePipes(t, tell, nil)
		s.others.ReadHeaderTimeout, s.others.ReadTimeout = 0, 0
		c := connect()
		c.says("GET / HTTP/1.0\r\n")
		time.Sleep(time.Minute)
		c.says("\r\n")
		c.hears("GET / ")
		_ = c.Close()
		s.stop()
	})
}

// Serve after Close ends.
func TestServeAfterClose(t *testing.T) {
	s := newServed(tell, nil)
	_ = s.Close()
	inner := listen(t)
	defer inner.Close()
	fault := make(chan error, 1)
	go func() { fault <- s.Serve(listener{inner, clientconn.NewRest(inner.Addr())}) }()
	select {
	case err := <-fault:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(2 * time.Second):
		t.Error("Serve does not end")
	}
}

// "Its Close does nothing but to end Accept": http.Server.Shutdown must not cut those served here.
func TestCloseOfOthers(t *testing.T) {
	s := serve(t, tell, nil)
	c := dial(t, s.address)
	c.says(get("/a"))
	c.hears("GET /a ")
	_ = s.others.Shutdown(t.Context())
	c.says(get("/a"))
	c.hears("GET /a ")
}
