package route

import (
	"slices"
	"strings"

	"snowgate/internal/request/canonical"
)

// Ambiguous reports whether a service could read path as a path of another route than the one with
// index route, or of the gateway itself. Two things are read in two ways: path parameters (RFC 3986
// §3.3), which servlet containers remove before they look for a handler, and an encoded slash,
// which many servers decode. So /svc;x/y and /svc%2Fy cannot get around what /svc requires. Paths
// with neither cost one scan.
func (t *Table) Ambiguous(host string, path canonical.Path, route int) bool {
	if !path.EncodedSlash && !strings.Contains(path.Match, ";") {
		return false
	}
	for _, reading := range [...]string{
		withoutParameters(path.Match),
		withSlashes(path.Match),
		withoutParameters(withSlashes(path.Match)),
		withSlashes(withoutParameters(path.Match)),
	} {
		if reading == path.Match {
			continue
		}
		if slices.ContainsFunc(t.reserved, func(own string) bool { return covers(own, reading) }) {
			return true
		}
		if other, found := t.Find(host, reading); found && other != route {
			return true
		}
	}
	return false
}

// withoutParameters cuts each segment at its first semicolon.
func withoutParameters(path string) string {
	if !strings.Contains(path, ";") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return strings.Join(segments, "/")
}

// withSlashes reads every encoded slash as one, and several slashes as one.
func withSlashes(path string) string {
	if !strings.Contains(path, "%2F") {
		return path
	}
	path = strings.ReplaceAll(path, "%2F", "/")
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}
