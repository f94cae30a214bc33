// Package canonical decides whether a request target has exactly one reading.
//
// A gateway that judges one path while the service behind it serves another is a gateway one can
// walk around: /public/%2e%2e/admin, //admin, /admin;x, /%61dmin. This package does not repair such
// targets, it refuses them. All software reads the remaining targets alike: by net/url, by
// path.Clean, by servers that decode once, that merge slashes, that strip path parameters, that
// turn backslashes.
//
// The rules, on the path as it was received:
//
//   - it starts with a slash and has no empty segment except the last;
//   - no segment is empty, "." or ".." once its ";" parameters are removed;
//   - literal bytes are pchar of RFC 3986 §3.3 and nothing else;
//   - what is percent-encoded needs to be: neither an unreserved character
//     (RFC 3986 §2.3) nor a backslash or a control character;
//   - an encoded slash is reported, for the route to decide, and separates
//     segments as far as "." and ".." go;
//   - decoded once, it is UTF-8 without control characters.
//
// Everything here is a pure function and safe for concurrent use.
package canonical

// Path is the path of a canonical request target.
type Path struct {
	// Raw is the path as received. The gateway forwards it unchanged.
	Raw string
	// Match is the form that routes are compared with: Raw with every percent-encoding decoded,
	// except an encoded slash, which stays "%2F".
	Match string
	// EncodedSlash reports whether Raw has an encoded slash.
	EncodedSlash bool
}
