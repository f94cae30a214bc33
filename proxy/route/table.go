package route

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"snowgate/internal/request/canonical"
)

// Table is a set of checked routes. It never changes and is safe for concurrent use. The zero value
// has no routes.
type Table struct {
	Routes   []*Route
	hosts    map[string][]level // by normal host, those with more segments first; "" is for any host
	reserved []string           // the gateway's own paths
}

// level holds the routes of one host whose paths have the same number of segments, as indexes by
// path. A request needs one map look-up for each number of segments that occurs, and touches no
// memory of other routes.
type level struct {
	segments int
	routes   map[string]int
}

// NewTable checks routes and returns them as a table, or all errors of all routes. reserved are
// paths that the gateway serves itself, on every host and with everything below; a route there
// could never be reached, and is refused. The order of routes has no meaning.
func NewTable(routes []Route, reserved []string) (*Table, error) {
	table := &Table{hosts: make(map[string][]level), reserved: slices.Clone(reserved)}
	names := make(map[string]bool, len(routes))
	var faults []error
	for _, spec := range routes {
		route, err := spec.compile()
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if names[route.Name] {
			faults = append(faults, fmt.Errorf("%s: there are two routes of this name", route.whose()))
		}
		names[route.Name] = true
		faults = append(faults, checkShadow(route, reserved), table.add(route))
	}
	faults = append(faults, table.checkHealth())
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return table, nil
}

// Extend returns a table with the routes of t and the valid ones of more. A route of more is
// refused if its name is taken, if it would take requests that a route before it serves, or if it
// lies at a reserved path. refused holds the errors by index in more; a conflict names both owners.
// t does not change, and is returned if more is empty.
func (t *Table) Extend(more []Route) (extended *Table, refused map[int]error) {
	if len(more) == 0 {
		return t, nil
	}
	extended = &Table{hosts: make(map[string][]level), reserved: t.reserved}
	named, taken := make(map[string]*Route, len(t.Routes)+len(more)), claims{}
	for _, route := range t.Routes {
		named[route.Name] = route
		_ = extended.add(route) // it was added before
		taken.add(route)
	}
	refused = make(map[int]error)
	for i, spec := range more {
		route, err := spec.compile()
		if err == nil {
			err = extended.append(route, named[route.Name], &taken)
		}
		if err != nil {
			refused[i] = err
			continue
		}
		named[route.Name] = route
		taken.add(route)
	}
	return extended, refused
}

// append adds route, or returns what is in its way. namesake is the route with the same name, or
// nil.
func (t *Table) append(route, namesake *Route, taken *claims) error {
	if namesake != nil {
		return fmt.Errorf("%s: %s has the same name", route.whose(), namesake.whose())
	}
	if err := checkShadow(route, t.reserved); err != nil {
		return err
	}
	if loser := t.loser(route, taken); loser != nil {
		return fmt.Errorf("%s: it would take requests for host %q and path %q from %s, which has host %q and path %q; "+
			"add the route to the file, or use a host or path that is free",
			route.whose(), route.Host, route.Path, loser.whose(), loser.Host, loser.Path)
	}
	return t.add(route)
}

// loser returns a route of t that would serve fewer or other requests if route were added, nil if
// there is none. A route with a host takes precedence over all without one, whatever their paths.
func (t *Table) loser(route *Route, taken *claims) *Route {
	if i, found := longest(t.hosts[route.Host], route.Path); found {
		return t.Routes[i]
	}
	return taken.loser(route)
}

// checkHealth refuses routes that check the same upstream in different ways, because the state is
// shared.
func (t *Table) checkHealth() error {
	first := make(map[string]*Route)
	var faults []error
	for _, route := range t.Routes {
		if route.Health == nil {
			continue
		}
		for _, target := range route.Targets {
			key := target.UpstreamKey()
			if other := first[key]; other != nil && *other.Health != *route.Health {
				faults = append(faults, fmt.Errorf("route %q: route %q checks the health of %s in another way", route.Name, other.Name, target.Name))
			}
			first[key] = route
		}
	}
	return errors.Join(faults...)
}

func checkShadow(route *Route, reserved []string) error {
	i := slices.IndexFunc(reserved, func(own string) bool { return covers(own, route.Path) })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%s: its path %q belongs to the gateway's own %q", route.whose(), route.Path, reserved[i])
}

// covers reports whether prefix is path or above it.
func covers(prefix, path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

func (t *Table) add(route *Route) error {
	levels := t.hosts[route.Host]
	at, known := slices.BinarySearchFunc(levels, route.segments, func(l level, segments int) int { return segments - l.segments })
	if !known {
		levels = slices.Insert(levels, at, level{route.segments, make(map[string]int)})
		t.hosts[route.Host] = levels
	}
	if taken, is := levels[at].routes[route.Path]; is {
		return fmt.Errorf("%s: %s has the same host %q and path %q",
			route.whose(), t.Routes[taken].whose(), route.Host, route.Path)
	}
	levels[at].routes[route.Path] = len(t.Routes)
	t.Routes = append(t.Routes, route)
	return nil
}

// Find returns the index of the route for a request to host, which may have a port, with the canonical
// path match (see [canonical.Path]). Routes of the host itself take precedence over those for any
// host; among those the longest path wins. The cost grows with the number of different depths of
// paths, not with the number of routes. Nothing is allocated for a host in lower case.
func (t *Table) Find(host, match string) (i int, found bool) {
	name, err := canonical.Host(host)
	if err != nil {
		return 0, false
	}
	if i, found = longest(t.hosts[name], match); found {
		return i, true
	}
	return longest(t.hosts[""], match)
}

// longest returns where the route with the longest path that covers match is among all.
func longest(levels []level, match string) (i int, found bool) {
	for _, l := range levels {
		if head, enough := firstSegments(match, l.segments); enough {
			if i, found = l.routes[head]; found {
				return i, true
			}
		}
	}
	return 0, false
}

// firstSegments returns the first n segments of path, and whether it has as many. No segments
// are "/".
func firstSegments(path string, n int) (head string, enough bool) {
	if n == 0 && path != "" {
		return "/", true
	}
	end := 0
	for range n {
		if end == len(path) {
			return "", false
		}
		if next := strings.IndexByte(path[end+1:], '/'); next >= 0 {
			end += 1 + next
		} else {
			end = len(path)
		}
	}
	return path[:end], end > 0
}

// All iterates over the routes in the order they were given. They must not be
// modified.
func (t *Table) All() iter.Seq[*Route] { return slices.Values(t.Routes) }
