package config

import (
	"fmt"
	"strings"

	"snowgate/idgen"
)

// Lint returns remarks on variables whose values may be unintended, one sentence each that begins
// with the variable. None of them is a fault.
func (c Config) Lint() []string {
	source, largest := c.WorkerID.Source, c.IDLayout.Max(idgen.FieldWorker)
	if (source == WorkerAuto || source == WorkerIPv4) && largest < 255 {
		// Which address that is depends on the host, and this may be another one.
		return []string{fmt.Sprintf("%sWORKER_ID: %s takes the last octet of the gateway's IPv4 address, and the worker field of %sID_LAYOUT, %s, goes up to %d: "+
			"at an address with a larger octet the gateway does not start", Prefix, source, Prefix, c.IDLayout, largest)}
	}
	return nil
}

// Lint returns remarks on routes of f that may be unintended, one sentence each. None of them is a
// fault.
func (f File) Lint() []string {
	var notes []string
	for _, route := range f.Routes {
		if !route.Public && route.Scopes == "" {
			notes = append(notes, fmt.Sprintf("route %q asks for a token, but for no scope: a token of any client passes", route.Name))
		}
		notes = append(notes, lintCORS(route)...)
		for _, other := range f.Routes {
			switch {
			case isOpenBeside(route, other):
				notes = append(notes, fmt.Sprintf("route %q is public and takes all paths that no other route has: what is forgotten at the protected route %q is open",
					route.Name, other.Name))
			case shadows(route, other):
				notes = append(notes, fmt.Sprintf("route %q is not reached on host %s: there route %q has its path, and routes of a host come first",
					other.Name, route.Host, route.Name))
			}
		}
	}
	return notes
}

// isOpenBeside reports whether route is public and takes everything on a host that
// other protects a part of.
func isOpenBeside(route, other Route) bool {
	return route.Public && route.Path == "/" && !other.Public && (route.Host == other.Host || other.Host == "")
}

// shadows reports whether other, which is for any host, has no part left on the
// host of route.
func shadows(route, other Route) bool {
	if route.Host == "" || other.Host != "" {
		return false
	}
	rest, covered := strings.CutPrefix(other.Path, strings.TrimSuffix(route.Path, "/"))
	return covered && (rest == "" || rest[0] == '/')
}
