package route

import "strings"

// claims finds the route of a table from which another route would take requests. The work grows
// with the segments of a path, not with the number of routes: there may be thousands, and Docker
// labels add more.
type claims struct {
	anyHost pathTree             // routes for any host
	read    map[string]*pathTree // by host, routes whose path has parameters, by the path without
	allRead pathTree             // the same of all hosts
}

// add notes route.
func (c *claims) add(route *Route) {
	if route.Host == "" {
		c.anyHost.add(route.Path, route)
	}
	read := withoutParameters(route.Path)
	if read == route.Path {
		return
	}
	if c.read == nil {
		c.read = make(map[string]*pathTree)
	}
	if c.read[route.Host] == nil {
		c.read[route.Host] = new(pathTree)
	}
	c.read[route.Host].add(read, route)
	c.allRead.add(read, route)
}

// loser returns a route of another host than route's, or one that is read in another way, from which
// route would take requests. It returns nil if there is none.
func (c *claims) loser(route *Route) *Route {
	// Requests for a path with parameters are refused if a service could read another
	// route's path in them (see ambiguous), so such a route must not be added.
	if route.Host == "" {
		return c.allRead.meets(route.Path)
	}
	for _, tree := range []*pathTree{&c.anyHost, c.read[route.Host], c.read[""]} {
		if loser := tree.meets(route.Path); loser != nil {
			return loser
		}
	}
	return nil
}

// pathTree holds routes by the segments of paths. The nil tree is empty.
type pathTree struct {
	children map[string]*pathTree
	here     *Route // the first whose path ends here
	below    *Route // the first whose path ends here or further down
}

// add notes that route has path.
func (t *pathTree) add(path string, route *Route) {
	for rest := path[1:]; ; {
		if t.below == nil {
			t.below = route
		}
		if rest == "" {
			break
		}
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		child := t.children[segment]
		if child == nil {
			child = new(pathTree)
			if t.children == nil {
				t.children = make(map[string]*pathTree)
			}
			t.children[segment] = child
		}
		t = child
	}
	if t.here == nil {
		t.here = route
	}
}

// meets returns a route whose path covers path, or is covered by it, nil if there is none.
func (t *pathTree) meets(path string) *Route {
	if t == nil {
		return nil
	}
	for rest := path[1:]; rest != ""; {
		if t.here != nil {
			return t.here
		}
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		if t = t.children[segment]; t == nil {
			return nil
		}
	}
	return t.below
}
