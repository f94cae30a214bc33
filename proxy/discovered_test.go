package proxy_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/middleware"
	"snowgate/proxy"
	"snowgate/proxy/route"
	"snowgate/tokens"
)

// discovered returns a public route of owner with replicas, whose ids come first.
func discovered(owner string, replicas ...any) route.Route {
	spec := route.Route{Name: "public", Path: "/public", Public: true, Discovered: true, Source: "docker", Owner: owner}
	for i := 0; i < len(replicas); i += 2 {
		id, u := replicas[i].(string), replicas[i+1].(*url.URL)
		spec.Replicas = append(spec.Replicas, route.Replica{ID: id, Name: "c-" + id, URL: u})
	}
	return spec
}

// dialled returns how many connections there have been.
func (u *testService) dialled() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.connections
}

func TestDiscoveredRouteWithoutReplica(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, discovered("shop/a"))
	for range 5 { // it is nobody's failure, so nothing is taken out
		response, body := g.ask(t, get("/public", ""))
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "5" || !strings.Contains(body, "No replica") {
			t.Fatalf("without a replica: %d %v %s, want 503 with Retry-After", response.StatusCode, response.Header, body)
		}
	}
	g.swap(t, discovered("shop/a", "1", service.url))
	if response, body := g.ask(t, get("/public", "")); response.StatusCode != http.StatusOK {
		t.Errorf("with a replica: %d %s, want 200", response.StatusCode, body)
	}
	g.swap(t, discovered("shop/a"))
	if response, _ := g.ask(t, get("/public", "")); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without it: %d, want 503", response.StatusCode)
	}
}

// A container that has the address of another one shares nothing with it: not the
// connections, and not what was found out about the other.
func TestReplicasWithOneAddressShareNothing(t *testing.T) {
	var ill atomic.Bool
	ill.Store(true)
	service := newUpstream(t, func(conn net.Conn, request string) bool {
		if ill.Load() {
			return false
		}
		return says(okResponse)(conn, request)
	})
	other := newUpstream(t, says(okResponse)) // or the ill one would be alone, and not taken out
	g := newGateway(t, gatewayOptions{}, discovered("shop/a", "1", service.url, "2", other.url))
	eventually(t, "the ill replica is taken out", func() bool {
		g.ask(t, get("/public", ""))
		return !g.router.Replicas("public")[0].Healthy
	})
	before := service.dialled()
	ill.Store(false)
	g.swap(t, discovered("shop/a", "3", service.url, "2", other.url))
	if states := g.router.Replicas("public"); !states[0].Healthy || states[0].Failures != 0 || states[0].Upstream != "docker:c-3" {
		t.Errorf("the new container: %+v, want nothing bad", states[0])
	}
	for range 2 {
		g.ask(t, get("/public", ""))
	}
	if got := service.dialled(); got != before+1 {
		t.Errorf("the new container was sent requests on %d new connections, want 1", got-before)
	}
}

// Whatever table a request was matched by: who is gone gets it no more.
func TestGoneReplicaGetsNothing(t *testing.T) {
	gone, left := newUpstream(t, says(okResponse)), newUpstream(t, says(okResponse))
	router := newRouter()
	defer router.Close()
	forwarder := proxy.NewForwarder(proxy.Options{})
	for _, tt := range []struct {
		why    string
		before route.Route
		after  route.Route
		want   int
	}{
		{"another is left", discovered("shop/a", "1", gone.url, "2", left.url), discovered("shop/a", "2", left.url), http.StatusOK},
		{"none is left", discovered("shop/a", "1", gone.url), discovered("shop/a"), http.StatusServiceUnavailable},
		{"its address is another's", discovered("shop/a", "1", gone.url), discovered("shop/a", "3", gone.url), http.StatusServiceUnavailable},
	} {
		swap := func(spec route.Route) {
			table, err := route.NewTable([]route.Route{spec}, nil)
			if err != nil {
				t.Fatal(err)
			}
			router.Swap(table)
		}
		handler := middleware.Canonical()(proxy.Match(router)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			swap(tt.after)
			forwarder.ServeHTTP(w, r)
		})))
		handler = middleware.Observe(middleware.Observation{})(handler)
		server := httptest.NewServer(handler)
		for range 4 {
			swap(tt.before)
			response, err := http.Get(server.URL + "/public")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != tt.want {
				t.Errorf("%s: %d, want %d", tt.why, response.StatusCode, tt.want)
			}
		}
		server.Close()
		gone.nothing(t)
	}
}

func TestExtend(t *testing.T) {
	u := mustParse(t, "http://10.0.0.1:80")
	file, err := route.NewTable([]route.Route{
		{Name: "orders", Source: "file", Path: "/orders", Upstreams: []*url.URL{u}},
		{Name: "any", Source: "file", Path: "/any", Upstreams: []*url.URL{u}, Public: true},
	}, []string{"/oauth2", "/readyz"})
	if err != nil {
		t.Fatal(err)
	}
	from := func(owner, name, host, path string) route.Route {
		spec := discovered(owner, "1", u)
		spec.Name, spec.Host, spec.Path = name, host, path
		return spec
	}
	if same, refused := file.Extend(nil); same != file || len(refused) != 0 {
		t.Errorf("Extend by nothing = another table, %v", refused)
	}
	extended, refused := file.Extend([]route.Route{
		from("shop/a", "a", "", "/a"),
		from("shop/b", "b", "", "/a"),            // a was first
		from("shop/c", "c", "h.example", "/c"),   // on a host of its own
		from("shop/orders", "o", "", "/orders"),  // the file's
		from("evil/orders", "orders", "", "/o2"), // the file's name
		from("shop/d", "a", "", "/d"),            // a's name
		from("shop/e", "e", "", "/oauth2/x"),
		from("shop/f", "f", "", "no path"),
		from("shop/g", "g", "", "/g"),
	})
	want := map[int]string{
		1: `route "b" of shop/b: it would take requests for host "" and path "/a" from route "a" of shop/a, which has host "" and path "/a"; add the route to the file, or use a host or path that is free`,
		3: `route "o" of shop/orders: it would take requests for host "" and path "/orders" from route "orders" of the file, which`,
		4: `route "orders" of evil/orders: route "orders" of the file has the same name`,
		5: `route "a" of shop/d: route "a" of shop/a has the same name`,
		6: `route "e" of shop/e: its path "/oauth2/x" belongs to the gateway's own "/oauth2"`,
		7: `route "f" of shop/f: path "no path"`,
	}
	for i, text := range want {
		if refused[i] == nil || !strings.HasPrefix(refused[i].Error(), text) {
			t.Errorf("refused %d: %v, want %s", i, refused[i], text)
		}
	}
	if len(refused) != len(want) {
		t.Errorf("refused %v, want %d of them", refused, len(want))
	}
	names := func(table *route.Table) (all []string) {
		for spec := range table.All() {
			all = append(all, spec.Name)
		}
		return all
	}
	if got := names(extended); !slices.Equal(got, []string{"orders", "any", "a", "c", "g"}) {
		t.Errorf("in force: %q", got)
	}
	if got := names(file); !slices.Equal(got, []string{"orders", "any"}) {
		t.Errorf("the table that was extended has %q", got)
	}
	for path, want := range map[string]string{"/orders/1": "orders", "/a/1": "a", "/any/d": "any"} {
		if got := proxy.Lookup(extended, "h", path); got.Name != want {
			t.Errorf("Lookup(%s) = %s, want %s", path, got.Name, want)
		}
	}
}

// relations are the ways in which the host and path of a label's route can lie to those of a route
// before it. docs/reference/docker-labels.md has them as a table, which TestRelationsAreDocumented compares.
var relations = []struct {
	hosts, paths         string // as the document calls them
	host, path           string // of the route that was first
	labelHost, labelPath string
	refused              bool
}{
	{"both without", "equal", "", "/a/b", "", "/a/b", true},
	{"both without", "deeper", "", "/a/b", "", "/a/b/c", true},
	{"both without", "shallower", "", "/a/b", "", "/a", false},
	{"both without", "apart", "", "/a/b", "", "/a/bc", false},
	{"the same", "equal", "h.example", "/a/b", "h.example", "/a/b", true},
	{"the same", "deeper", "h.example", "/a/b", "H.example", "/a/b/c", true},
	{"the same", "shallower", "h.example", "/a/b", "h.example", "/", false},
	{"the same", "apart", "h.example", "/a/b", "h.example", "/a/c", false},
	{"only the label's route has one", "equal", "", "/a/b", "h.example", "/a/b", true},
	{"only the label's route has one", "deeper", "", "/a/b", "h.example", "/a/b/c", true},
	{"only the label's route has one", "shallower", "", "/a/b", "h.example", "/", true},
	{"only the label's route has one", "apart", "", "/a/b", "h.example", "/a/c", false},
	{"only the first route has one", "equal", "h.example", "/a/b", "", "/a/b", false},
	{"only the first route has one", "deeper", "h.example", "/a/b", "", "/a/b/c", false},
	{"only the first route has one", "shallower", "h.example", "/a/b", "", "/", false},
	{"only the first route has one", "apart", "h.example", "/a/b", "", "/a/c", false},
	{"different", "equal", "h.example", "/a/b", "i.example", "/a/b", false},
	{"different", "deeper", "h.example", "/a/b", "i.example", "/a/b/c", false},
	{"different", "shallower", "h.example", "/a/b", "i.example", "/", false},
	{"different", "apart", "h.example", "/a/b", "i.example", "/a/c", false},
}

// TestLabelsTakeNothing tries every relation, to a route of the file and to one of another
// container: what was answered without the label's route is answered by the same route with it.
func TestLabelsTakeNothing(t *testing.T) {
	u := mustParse(t, "http://10.0.0.1:80")
	for _, tt := range relations {
		for _, source := range []string{"file", "docker"} {
			first := route.Route{Name: "first", Source: "file", Host: tt.host, Path: tt.path, Upstreams: []*url.URL{u}}
			table, err := route.NewTable([]route.Route{first}, nil)
			if source == "docker" {
				first = discovered("shop/first", "1", u)
				first.Name, first.Host, first.Path = "first", tt.host, tt.path
				table, err = route.NewTable([]route.Route{first}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			label := discovered("evil/label", "2", u)
			label.Name, label.Host, label.Path = "label", tt.labelHost, tt.labelPath
			extended, refused := table.Extend([]route.Route{label})
			if (refused[0] != nil) != tt.refused {
				t.Errorf("%s, host %s, path %s: refused %v, want %v", source, tt.hosts, tt.paths, refused[0], tt.refused)
			}
			for _, host := range []string{"h.example", "i.example", "other"} {
				for _, path := range []string{"/", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/bc", "/a/c"} {
					before, after := proxy.Lookup(table, host, path), proxy.Lookup(extended, host, path)
					if before != nil && (after == nil || after.Name != "first") {
						t.Errorf("%s, host %s, path %s: %s%s is answered by %v, want the first route", source, tt.hosts, tt.paths, host, path, after)
					}
				}
			}
		}
	}
}

// A path with parameters is read in two ways, so a label must not make one of them another route.
func TestLabelsMakeNothingAmbiguous(t *testing.T) {
	u := mustParse(t, "http://10.0.0.1:80")
	table, err := route.NewTable([]route.Route{{Name: "first", Source: "file", Path: "/a;v=1", Upstreams: []*url.URL{u}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/a", "/a/b"} {
		label := discovered("evil/label", "2", u)
		label.Path = path
		if _, refused := table.Extend([]route.Route{label}); refused[0] == nil {
			t.Errorf("a label at %s beside /a;v=1 is not refused", path)
		}
	}
}

// TestRelationsAreDocumented compares the table of docs/reference/docker-labels.md with what was tried.
func TestRelationsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/docker-labels.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| hosts | path of the label's route | result |\n|---|---|---|\n")
	for _, tt := range relations {
		result := "added"
		if tt.refused {
			result = "refused"
		}
		fmt.Fprintf(&want, "| %s | %s | %s |\n", tt.hosts, tt.paths, result)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/reference/docker-labels.md has not this table:\n%s", want.String())
	}
}

func TestFaultyReplicas(t *testing.T) {
	u := mustParse(t, "http://10.0.0.1:80")
	for why, spec := range map[string]route.Route{
		"no id":              discovered("a", "", u),
		"one id twice":       discovered("a", "1", u, "1", u),
		"a name":             discovered("a", "1", mustParse(t, "http://service:80")),
		"no scheme":          discovered("a", "1", mustParse(t, "ftp://10.0.0.1:80")),
		"no URL":             {Name: "x", Path: "/x", Discovered: true, Replicas: []route.Replica{{ID: "1"}}},
		"upstreams as well":  {Name: "x", Path: "/x", Discovered: true, Upstreams: []*url.URL{u}},
		"it was not to have": {Name: "x", Path: "/x", Replicas: []route.Replica{{ID: "1", URL: u}}},
	} {
		if _, err := route.NewTable([]route.Route{spec}, nil); err == nil {
			t.Errorf("%s: no fault", why)
		}
	}
}

// TestSince: a route is as old as what it says.
func TestSince(t *testing.T) {
	clock := newTestClock()
	u := mustParse(t, "http://10.0.0.1:80")
	with := public(u)
	with.CORS = &route.CORS{Origins: []string{"https://a.example"}}
	other := protected(u)
	g := newGateway(t, gatewayOptions{now: clock.time}, with, other)
	begin := clock.time()
	since := func(name string) any {
		for _, state := range g.router.States() {
			if state.Name == name {
				return state.Since
			}
		}
		return nil
	}
	clock.advance(time.Second)
	g.swap(t, other, with) // in another order
	if since("public") != begin || since("protected") != begin {
		t.Errorf("the same routes are as old as %v and %v, want %v", since("public"), since("protected"), begin)
	}
	with.Requirement, with.Public = tokens.Requirement{Scope: "a"}, false
	g.swap(t, other, with)
	if since("public") != clock.time() || since("protected") != begin {
		t.Errorf("a route with another scope is as old as %v, the other %v, want %v and %v", since("public"), since("protected"), clock.time(), begin)
	}
}
