package proxy_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"snowgate/proxy"
	"snowgate/proxy/route"
	"snowgate/tokens"
)

var somewhere = []*url.URL{{Scheme: "http", Host: "orders:8080"}}

func TestLookup(t *testing.T) {
	table, err := route.NewTable([]route.Route{
		{Name: "root", Path: "/", Upstreams: somewhere},
		{Name: "svc", Path: "/svc", Upstreams: somewhere},
		{Name: "deep", Path: "/svc/a/b", Upstreams: somewhere},
		{Name: "colon", Path: "/a:b", Upstreams: somewhere},
		{Name: "shop", Host: "shop.example", Path: "/svc/a", Upstreams: somewhere},
		{Name: "v6", Host: "[2001:db8::1]", Path: "/", Upstreams: somewhere},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ host, path, want, why string }{
		{"h", "/", "root", ""},
		{"h", "/x", "root", "everything is below the root"},
		{"h", "/svc", "svc", "the prefix itself"},
		{"h", "/svc/", "svc", "with a trailing slash"},
		{"h", "/svc/x", "svc", "below it"},
		{"h", "/svcx", "root", "only at a segment boundary"},
		{"h", "/SVC/x", "root", "case counts"},
		{"h", "/svc/a", "svc", "a node without a route"},
		{"h", "/svc/a/b", "deep", "the longest wins"},
		{"h", "/svc/a/b/c", "deep", "the longest wins"},
		{"h", "/svc/a/bc", "svc", "back to the shorter one"},
		{"h", "/svc;x/a", "root", "parameters belong to the segment"},
		{"h", "/a:b/c", "colon", ""},
		{"h", "/svc%2Fx", "root", "an encoded slash is no boundary"},
		{"shop.example", "/svc/a", "shop", "the host's own routes come first"},
		{"SHOP.example.:8443", "/svc/a/b", "shop", "also before longer ones for any host; case, dot and port are ignored"},
		{"shop.example", "/svc", "svc", "then those for any host"},
		{"shop.example.org", "/svc/a", "svc", "another host"},
		{"[2001:db8:0:0::1]:80", "/svc", "v6", "one address, two spellings"},
		{"", "/svc", "", "no host"},
		{"a b", "/svc", "", "not a host"},
	}
	for _, test := range tests {
		got := ""
		if route := proxy.Lookup(table, test.host, test.path); route != nil {
			got = route.Name
		}
		if got != test.want {
			t.Errorf("Lookup(%q, %q) = %q, want %q (%s)", test.host, test.path, got, test.want, test.why)
		}
	}
}

// TestLookupAsByLookingAtEach compares tables of short paths with what is found by looking at
// one route after the other.
func TestLookupAsByLookingAtEach(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	somePath := func(most int) string {
		path := ""
		for range random.IntN(most + 1) {
			path += "/" + string("abc"[random.IntN(3)]) + strings.Repeat("c", random.IntN(2))
		}
		return cmp.Or(path, "/")
	}
	someHost := func() string { return []string{"", "one.example", "two.example"}[random.IntN(3)] }
	for range 300 {
		var routes []route.Route
		taken := make(map[string]bool)
		for range random.IntN(20) {
			route := route.Route{Name: fmt.Sprint("r", len(routes)), Host: someHost(), Path: somePath(4), Upstreams: somewhere}
			if place := route.Host + route.Path; !taken[place] {
				routes, taken[place] = append(routes, route), true
			}
		}
		table, err := route.NewTable(routes, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			host, path := cmp.Or(someHost(), "other.example"), somePath(6)
			if random.IntN(4) == 0 && path != "/" {
				path += "/"
			}
			want, got, longest := "", "", 0
			for _, r := range routes {
				covers := path == r.Path || strings.HasPrefix(path, strings.TrimSuffix(r.Path, "/")+"/")
				weight := len(r.Path)
				if r.Host == host {
					weight += 1000 // before all those for any host
				}
				if covers && (r.Host == "" || r.Host == host) && weight > longest {
					want, longest = r.Name, weight
				}
			}
			if route := proxy.Lookup(table, host, path); route != nil {
				got = route.Name
			}
			if got != want {
				t.Fatalf("Lookup(%q, %q) = %q, want %q, of %+v", host, path, got, want, routes)
			}
		}
	}
}

func TestLookupUnknownHost(t *testing.T) {
	table, err := route.NewTable([]route.Route{{Name: "a", Host: "a.example", Path: "/", Upstreams: somewhere}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := proxy.Lookup(table, "b.example", "/"); got != nil {
		t.Errorf("Lookup of an unknown host = %q, want none", got.Name)
	}
	if got := proxy.Lookup(new(route.Table), "a.example", "/"); got != nil {
		t.Errorf("Lookup in the zero table = %q, want none", got.Name)
	}
}

func TestNewTableFaults(t *testing.T) {
	upstream := func(text string) []*url.URL { return []*url.URL{mustParse(t, text)} }
	tests := []struct {
		why    string
		routes []route.Route
		want   []string // parts of the message
	}{
		{"no name", []route.Route{{Path: "/a"}}, []string{"a route needs a name"}},
		{"two of a name", []route.Route{{Name: "a", Path: "/a"}, {Name: "a", Path: "/b"}}, []string{`"a"`, "two routes"}},
		{"two at a place name both", []route.Route{{Name: "a", Path: "/x"}, {Name: "b", Path: "/x"}}, []string{`"a"`, `"b"`, `"/x"`}},
		{
			"one host in two spellings",
			[]route.Route{{Name: "a", Host: "H.example", Path: "/x"}, {Name: "b", Host: "h.example.", Path: "/x"}},
			[]string{`"a"`, `"b"`, `"h.example"`},
		},
		{"a host with a port", []route.Route{{Name: "a", Host: "h:80", Path: "/x"}}, []string{`"h:80"`}},
		{"a host that is none", []route.Route{{Name: "a", Host: "h/x", Path: "/x"}}, []string{`"h/x"`}},
		{"no path", []route.Route{{Name: "a"}}, []string{`path ""`}},
		{"an encoded path", []route.Route{{Name: "a", Path: "/%61"}}, []string{"percent-encoding"}},
		{"a slash at the end", []route.Route{{Name: "a", Path: "/a/"}}, []string{"does not end with a slash"}},
		{"the gateway's own path", []route.Route{{Name: "a", Path: "/oauth2"}}, []string{`"/oauth2"`}},
		{"below it", []route.Route{{Name: "a", Path: "/oauth2/token"}}, []string{`"/oauth2"`}},
		{"also on one host only", []route.Route{{Name: "a", Host: "h", Path: "/livez"}}, []string{`"/livez"`}},
		{"a method in lower case", []route.Route{{Name: "a", Path: "/a", Methods: []string{"get"}}}, []string{`"get"`}},
		{"CONNECT", []route.Route{{Name: "a", Path: "/a", Methods: []string{"CONNECT"}}}, []string{"CONNECT"}},
		{"TRACE", []route.Route{{Name: "a", Path: "/a", Methods: []string{"TRACE"}}}, []string{"TRACE"}},
		{"an upstream without scheme", []route.Route{{Name: "a", Path: "/a", Upstreams: upstream("//orders")}}, []string{"http"}},
		{"an upstream without host", []route.Route{{Name: "a", Path: "/a", Upstreams: upstream("http://:80")}}, []string{"host"}},
		{"another scheme", []route.Route{{Name: "a", Path: "/a", Upstreams: upstream("ftp://orders")}}, []string{"ftp"}},
		{"a password is not printed", []route.Route{{Name: "a", Path: "/a", Upstreams: upstream("http://u:hunter2@orders")}}, []string{"xxxxx"}},
		{"an upstream with a query", []route.Route{{Name: "a", Path: "/a", Upstreams: upstream("http://orders?x")}}, []string{"more than"}},
		{"an upstream with dots", []route.Route{{Name: "a", Path: "/a", Upstreams: upstream("http://orders/a/../b")}}, []string{"dot segment"}},
		{"no upstream at all", []route.Route{{Name: "a", Path: "/a", Upstreams: []*url.URL{nil}}}, []string{"host"}},
		{"a negative timeout", []route.Route{{Name: "a", Path: "/a", Timeout: -1}}, []string{"negative"}},
		{"a negative limit", []route.Route{{Name: "a", Path: "/a", MaxBody: -1}}, []string{"negative"}},
		{
			"public and not public",
			[]route.Route{{Name: "a", Path: "/a", Public: true, Requirement: tokens.Requirement{Scope: "x"}}},
			[]string{"public"},
		},
		{
			"all faults together",
			[]route.Route{{Name: "a", Path: "a", Timeout: -1}, {Name: "b", Path: "/livez"}},
			[]string{`route "a"`, "slash", "negative", `route "b"`},
		},
	}
	for _, test := range tests {
		_, err := route.NewTable(test.routes, []string{"/oauth2", "/livez"})
		for _, part := range test.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("NewTable with %s = %v, want an error with %q", test.why, err, part)
			}
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("NewTable with %s = %v: it shows a password", test.why, err)
		}
	}
}

func TestNewTableAllowsNeighboursOfItsOwnPaths(t *testing.T) {
	routes := []route.Route{
		{Name: "root", Path: "/"}, {Name: "a", Path: "/oauth2x"}, {Name: "b", Path: "/livezz"},
		{Name: "c", Path: "/.well-known"}, {Name: "d", Path: "/.well-known/other"},
	}
	table, err := route.NewTable(routes, []string{"/oauth2", "/livez", "/.well-known/oauth-authorization-server"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for route := range table.All() {
		names = append(names, route.Name)
	}
	if want := []string{"root", "a", "b", "c", "d"}; !slices.Equal(names, want) {
		t.Errorf("All() = %q, want %q", names, want)
	}
}

func TestTableIsACopy(t *testing.T) {
	routes := []route.Route{{Name: "a", Path: "/a", Methods: []string{"GET"}, Upstreams: slices.Clone(somewhere)}}
	table, err := route.NewTable(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	routes[0].Name, routes[0].Methods[0], routes[0].Upstreams[0] = "b", "PUT", nil
	got := proxy.Lookup(table, "h", "/a")
	if got.Name != "a" || got.Methods[0] != "GET" || got.Upstreams[0] == nil {
		t.Errorf("the table changed with the routes it was made of: %+v", got)
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	table := bigTable(t, 1000)
	got := testing.AllocsPerRun(100, func() {
		proxy.Lookup(table, "h500.example:8080", "/svc500/v1/items/42")
		proxy.Lookup(table, "elsewhere.example", "/nothing/here")
	})
	if got != 0 {
		t.Errorf("Lookup = %v allocations, want 0", got)
	}
}

func bigTable(t testing.TB, size int) *route.Table {
	routes := make([]route.Route, size)
	for i := range routes {
		routes[i] = route.Route{
			Name: fmt.Sprint("r", i), Host: fmt.Sprintf("h%d.example", i%(size/2+1)),
			Path: fmt.Sprintf("/svc%d/v1", i), Upstreams: somewhere,
		}
	}
	table, err := route.NewTable(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// BenchmarkLookup shows that the cost does not grow with the number of routes,
// nor with the length of a path that no route goes along.
func BenchmarkLookup(b *testing.B) {
	long := "/svc1/v1" + strings.Repeat("/x", 8000)
	for _, size := range []int{10, 1000, 100_000} {
		table := bigTable(b, size)
		b.Run(fmt.Sprint("routes=", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				proxy.Lookup(table, "h1.example", "/svc1/v1/items/42")
			}
		})
		b.Run(fmt.Sprintf("routes=%d/long", size), func(b *testing.B) {
			for b.Loop() {
				proxy.Lookup(table, "h1.example", long)
			}
		})
	}
}
