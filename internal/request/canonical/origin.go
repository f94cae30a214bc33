package canonical

import (
	"errors"
	"net/netip"
	"strings"
)

// AnyOrigin is the pattern that matches every origin.
const AnyOrigin = "*"

// ValidOrigin tells whether pattern can stand for origins: [AnyOrigin], an origin as browsers send
// it in Origin (RFC 6454 §6.2), or one whose host begins with "*.", which stands for every name
// below the rest of the host, however deep. It refuses patterns that no browser's origin could
// match: a default port, capitals, anything behind the port. "null" is refused because it is the
// origin of any page that wants to have it. Its error is for the person who wrote the pattern, as
// the end of a sentence.
func ValidOrigin(pattern string) error {
	if pattern == AnyOrigin {
		return nil
	}
	scheme, authority, found := strings.Cut(pattern, "://")
	switch {
	case pattern == "null":
		return errors.New("is an origin that any page can give itself")
	case !found || !isScheme(scheme):
		return errors.New("is not an origin such as https://app.example")
	case strings.ContainsAny(authority, "/?#"):
		return errors.New("has more than scheme, host and port: no origin ends in a slash or has a path")
	case pattern != strings.ToLower(pattern):
		return errors.New("has capitals, and browsers send origins in lower case")
	}
	domain, wild := strings.CutPrefix(authority, "*.")
	host, _ := Host(domain)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); wild && err == nil {
		return errors.New("has an asterisk before an address, below which there are no names")
	}
	return validOriginHost(scheme, domain)
}

// validOriginHost checks host and port of an origin.
func validOriginHost(scheme, authority string) error {
	if strings.Contains(authority, "*") {
		return errors.New("may have one asterisk, as the first label of its host")
	}
	host, err := Host(authority)
	rest, same := strings.CutPrefix(authority, host)
	port, colon := strings.CutPrefix(rest, ":")
	switch {
	case strings.HasPrefix(host, ".") || strings.Contains(host, ".."):
		return errors.New("has an empty label in its host, and no browser sends that")
	case err != nil || !same || colon == (port == "") || strings.HasPrefix(port, "0"):
		return errors.New("does not name a host, with a port if it is not the default one, as browsers do")
	case scheme == "http" && port == "80", scheme == "https" && port == "443":
		return errors.New("names the default port of its scheme, and browsers leave that out")
	}
	return nil
}

// isScheme reports whether text is a scheme (RFC 3986 §3.1), in upper or lower case.
func isScheme(text string) bool {
	for i, c := range []byte(strings.ToLower(text)) {
		switch {
		case 'a' <= c && c <= 'z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return text != ""
}
