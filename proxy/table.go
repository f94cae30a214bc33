package proxy

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"snowgate/canonical"
)

// Table is a set of routes that were found to be in order. It never changes and
// is safe for concurrent use. The zero value has no routes.
type Table struct {
	routes   []*Route
	hosts    map[string]*node // by normal host; "" holds the routes for any host
	reserved []string         // the gateway's own paths
}

// node is one segment of the paths of the routes of one host.
type node struct {
	route    *Route // that ends here, or nil
	children map[string]*node
}

// NewTable checks routes and returns them as a table. reserved are the paths
// that the gateway answers itself, on every host, with everything below them:
// a route at or below one would never be reached, and is refused.
// All faults are reported together; the order of routes has no meaning.
func NewTable(routes []Route, reserved []string) (*Table, error) {
	table := &Table{hosts: make(map[string]*node), reserved: slices.Clone(reserved)}
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

// Extend returns a table with the routes of t and those of more that are in order,
// have no name and no place that a route before them has, and lie at none of the
// gateway's own paths. refused says, by index in more, what is wrong with the
// others; a conflict names the owners of both. t stays as it is, and is returned if there are
// no more.
func (t *Table) Extend(more []Route) (extended *Table, refused map[int]error) {
	if len(more) == 0 {
		return t, nil
	}
	extended = &Table{hosts: make(map[string]*node), reserved: t.reserved}
	named := make(map[string]*Route, len(t.routes)+len(more))
	for _, route := range t.routes {
		same := *route
		named[same.Name] = &same
		_ = extended.add(&same) // it was added before
	}
	refused = make(map[int]error)
	for i, spec := range more {
		route, err := spec.compile()
		if err == nil {
			err = extended.append(route, named[route.Name])
		}
		if err != nil {
			refused[i] = err
			continue
		}
		named[route.Name] = route
	}
	return extended, refused
}

// append adds route unless something is in its way. namesake is the route that has
// its name, or nil.
func (t *Table) append(route, namesake *Route) error {
	if namesake != nil {
		return fmt.Errorf("%s: %s has the same name", route.whose(), namesake.whose())
	}
	if err := checkShadow(route, t.reserved); err != nil {
		return err
	}
	return t.add(route)
}

// checkHealth refuses routes that want the same upstream checked in different
// ways: there is one state for both.
func (t *Table) checkHealth() error {
	first := make(map[string]*Route)
	var faults []error
	for _, route := range t.routes {
		if route.Health == nil {
			continue
		}
		for _, target := range route.targets {
			key := target.upstreamKey()
			if other := first[key]; other != nil && *other.Health != *route.Health {
				faults = append(faults, fmt.Errorf("route %q: route %q checks the health of %s in another way", route.Name, other.Name, target.name))
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
	at := t.hosts[route.Host]
	if at == nil {
		at = new(node)
		t.hosts[route.Host] = at
	}
	if route.Path != "/" {
		for segment := range strings.SplitSeq(route.Path[1:], "/") {
			at = at.child(segment)
		}
	}
	if at.route != nil {
		return fmt.Errorf("%s: %s has the same host %q and path %q",
			route.whose(), at.route.whose(), route.Host, route.Path)
	}
	at.route = route
	route.index = len(t.routes)
	t.routes = append(t.routes, route)
	return nil
}

func (n *node) child(segment string) *node {
	if n.children == nil {
		n.children = make(map[string]*node)
	}
	child := n.children[segment]
	if child == nil {
		child = new(node)
		n.children[segment] = child
	}
	return child
}

// Lookup returns the route for a request to host, which may have a port, with
// the canonical path match (see [canonical.Path]), or nil. Routes of the host
// itself come first, then those for any host; of several the one with the
// longest path is taken. The cost grows with the depth of the deepest route,
// not with their number, and nothing is allocated for a host in lower case.
func (t *Table) Lookup(host, match string) *Route {
	name, err := canonical.Host(host)
	if err != nil {
		return nil
	}
	if route := t.hosts[name].longest(match); route != nil {
		return route
	}
	return t.hosts[""].longest(match)
}

// longest returns the route below n with the longest path that covers match.
func (n *node) longest(match string) *Route {
	if n == nil || match == "" {
		return nil
	}
	found := n.route
	for rest, more := match[1:], true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if n = n.children[segment]; n == nil {
			break
		}
		if n.route != nil {
			found = n.route
		}
	}
	return found
}

// All iterates over the routes in the order they were given. They must not be
// modified.
func (t *Table) All() iter.Seq[*Route] { return slices.Values(t.routes) }
