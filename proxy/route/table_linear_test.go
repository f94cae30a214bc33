package route

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"

	"snowgate/integration/lineartest"
)

// TestLinearTables: the work of making a table grows as the number of routes does, whoever adds them.
func TestLinearTables(t *testing.T) {
	routes := func(size int, host, path string) []Route {
		list := make([]Route, size)
		for i := range list {
			list[i] = Route{Name: fmt.Sprintf("r%d%s", i, host), Path: fmt.Sprintf(path, i)}
			if host != "" {
				list[i].Host = fmt.Sprintf(host, i)
			}
		}
		return list
	}
	extend := func(file, labels []Route) func() {
		table, err := NewTable(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		return func() { table.Extend(labels) }
	}
	lineartest.Run(t, []lineartest.Case{
		{Name: "NewTable", Size: 250, Prepare: func(size int) func() {
			list := routes(size, "", "/%d")
			return func() { _, _ = NewTable(list, []string{"/oauth2"}) }
		}},
		{Name: "NewTable, hosts", Size: 250, Prepare: func(size int) func() {
			list := routes(size, "h%d", "/%d")
			return func() { _, _ = NewTable(list, []string{"/oauth2"}) }
		}},
		{Name: "Extend", Size: 250, Prepare: func(size int) func() { return extend(nil, routes(size, "", "/%d")) }},
		{Name: "Extend, hosts", Size: 250, Prepare: func(size int) func() { return extend(nil, routes(size, "h%d", "/%d")) }},
		{Name: "Extend, as many in the file", Size: 250, Prepare: func(size int) func() {
			return extend(routes(size, "", "/f%d"), routes(size, "h%d", "/%d"))
		}},
		{Name: "Extend, parameters", Size: 250, Prepare: func(size int) func() {
			return extend(routes(size, "", "/f%d;a"), routes(size, "h%d", "/%d;a"))
		}},
		{Name: "Extend, one path many times", Size: 250, Prepare: func(size int) func() {
			list := routes(size, "", "/%d")
			for i := range list {
				list[i].Path = "/a"
			}
			return extend(nil, list)
		}},
	})
}

// TestLoserAsByLookingAtEach: the index of claims finds a loser whenever a look at each route does.
func TestLoserAsByLookingAtEach(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 5))
	hosts, segments := []string{"", "h", "i"}, []string{"a", "b", "a;x", "a;y", "ab"}
	found := 0
	for range 20000 {
		var routes []Route
		for i := range 4 {
			path := ""
			for range random.IntN(4) {
				path += "/" + segments[random.IntN(len(segments))]
			}
			routes = append(routes, Route{Name: fmt.Sprint("r", i), Host: hosts[random.IntN(len(hosts))], Path: cmp.Or(path, "/")})
		}
		table, err := NewTable(routes[1:], nil)
		if err != nil {
			continue // two are the same
		}
		_, refused := table.Extend(routes[:1])
		want := takesFromAny(table, &routes[0])
		if got := refused[0] != nil; got != want {
			t.Fatalf("Extend(%v) of %v: refused = %v, want %v", routes[0], routes[1:], refused[0], want)
		}
		if want {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d routes were refused", found)
	}
}

// takesFromAny reports whether route would take requests from a route of table.
func takesFromAny(table *Table, route *Route) bool {
	if _, found := longest(table.hosts[route.Host], route.Path); found {
		return true
	}
	for _, other := range table.Routes {
		precedes := route.Host != "" && other.Host == ""
		if precedes && (covers(other.Path, route.Path) || covers(route.Path, other.Path)) {
			return true
		}
		read := withoutParameters(other.Path)
		meets := route.Host == other.Host || route.Host == "" || other.Host == ""
		if read != other.Path && meets && (covers(read, route.Path) || covers(route.Path, read)) {
			return true
		}
	}
	return false
}
