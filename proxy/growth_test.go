package proxy_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"snowgate/proxy"
	"snowgate/proxy/route"
)

// growingTable is a table of so many routes: a third on one host, a third each on
// a host of its own, a third for any host, at different depths.
func growingTable(t testing.TB, size int, more ...route.Route) *route.Table {
	t.Helper()
	routes := make([]route.Route, size, size+len(more))
	for i := range routes {
		host := ""
		switch i % 3 {
		case 0:
			host = "one.example"
		case 1:
			host = fmt.Sprintf("h%d.example", i)
		}
		path := fmt.Sprintf("/svc%d%s", i, strings.Repeat("/v1", i%4))
		routes[i] = route.Route{Name: fmt.Sprint("r", i), Host: host, Path: path, Upstreams: somewhere}
	}
	table, err := route.NewTable(append(routes, more...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// fastest returns the shortest of several times that lookups in each of the tables
// took, in turns, so that whatever else the machine does meets all of them.
func fastest(tables []*route.Table, lookup func(*route.Table)) []time.Duration {
	best := make([]time.Duration, len(tables))
	for i := range best {
		best[i] = math.MaxInt64
	}
	for range 60 {
		for i, table := range tables {
			begin := time.Now()
			for range 500 {
				lookup(table)
			}
			best[i] = min(best[i], time.Since(begin))
		}
	}
	return best
}

// TestLookupCostDoesNotGrow compares tables of 10 and of 10 000 routes. Twice the time is promised.
// That is checked with SNOWGATE_TEST_LONG=1, as by make promises; a busy machine is asked for eight
// times, which is less than a hundredth of the time of a search through all routes.
func TestLookupCostDoesNotGrow(t *testing.T) {
	most := 8.0
	if os.Getenv("SNOWGATE_TEST_LONG") == "1" {
		most = 2
	}
	tables := []*route.Table{growingTable(t, 10), growingTable(t, 10_000)}
	for what, lookup := range map[string]func(*route.Table){
		"a route of the host":        func(table *route.Table) { proxy.Lookup(table, "one.example", "/svc3/v1/v1/v1/items/42") },
		"a route of any host":        func(table *route.Table) { proxy.Lookup(table, "one.example", "/svc2/v1/v1/items/42") },
		"no route":                   func(table *route.Table) { proxy.Lookup(table, "nowhere.example", "/nothing/here") },
		"a path that nearly matches": func(table *route.Table) { proxy.Lookup(table, "one.example", "/svc3x"+strings.Repeat("/v1", 50)) },
	} {
		took := fastest(tables, lookup)
		if took[1].Seconds() > most*took[0].Seconds() {
			t.Errorf("%s: %v with 10 000 routes, %v with 10", what, took[1]/500, took[0]/500)
		}
		t.Logf("%s: %v with 10 routes, %v with 10 000", what, took[0]/500, took[1]/500)
	}
}

// BenchmarkRequestAmongRoutes is a whole request through the gateway, with so many
// routes.
func BenchmarkRequestAmongRoutes(b *testing.B) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer service.Close()
	for _, size := range []int{10, 10_000} {
		g := newGateway(b, gatewayOptions{})
		g.router.Swap(growingTable(b, size, protected(mustParse(b, service.URL))))
		b.Run(fmt.Sprint("routes=", size), func(b *testing.B) { benchmarkHandler(b, g.Config.Handler) })
	}
}

// TestSwapLeavesStreamsAlone takes away the route of a stream that goes on, and its
// service, and has another service at the same place: the stream goes on as before,
// both ways, and new requests see the new table.
func TestSwapLeavesStreamsAlone(t *testing.T) {
	down, up, got := make(chan string), make(chan string), make(chan string, 10)
	service := newDuplex(t, down, got)
	g := newGateway(t, gatewayOptions{}, public(service))
	c := dial(t, g.address())
	c.send("POST /public HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
	down <- "1"
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("POST = %v, %v", response, err)
	}
	defer response.Body.Close()
	go func() {
		for text := range up {
			c.send("1\r\n" + text + "\r\n")
		}
		c.send("0\r\n\r\n")
	}()
	wantNext := func(text string) {
		t.Helper()
		buffer := make([]byte, 1)
		if _, err := io.ReadFull(response.Body, buffer); err != nil || string(buffer) != text {
			t.Fatalf("the stream says %q, %v, want %q", buffer, err, text)
		}
	}
	wantNext("1")
	other := newUpstream(t, says(okResponse))
	elsewhere := public(other.url)
	elsewhere.Path = "/elsewhere"
	for i, routes := range [][]route.Route{nil, {elsewhere}, {public(other.url)}} {
		g.swap(t, routes...)
		response, _ := g.ask(t, get("/public", ""))
		if want := []int{http.StatusNotFound, http.StatusNotFound, http.StatusOK}[i]; response.StatusCode != want {
			t.Errorf("a new request after swap %d = %d, want %d", i+1, response.StatusCode, want)
		}
		text := fmt.Sprint(i + 2)
		down <- text
		wantNext(text)
		up <- text
	}
	close(up)
	close(down)
	if _, err := response.Body.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	if all := <-got; all != "a234" {
		t.Errorf("the service got %q, want all of it", all)
	}
}

// newDuplex is a service that says what comes from down, byte by byte, while it
// reads the request. It tells in got what that was.
func newDuplex(t *testing.T, down <-chan string, got chan<- string) *url.URL {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		read := make(chan string, 1)
		go func() {
			all, _ := io.ReadAll(r.Body)
			read <- string(all)
		}()
		for text := range down {
			_, _ = io.WriteString(w, text)
			_ = control.Flush()
		}
		select {
		case all := <-read:
			got <- all
		case <-time.After(patienceOfTests):
			got <- "no end"
		}
	}))
	t.Cleanup(server.Close)
	return mustParse(t, server.URL)
}
