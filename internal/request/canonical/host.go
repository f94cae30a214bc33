package canonical

import (
	"errors"
	"net/netip"
	"strings"
)

// ErrHost is returned if Host is empty, or is not a host with an optional port.
var ErrHost = errors.New("the host is missing or malformed")

// Host returns the name by which routes are looked up: hostport in lower case, without the port and
// the trailing dot of a fully qualified name (RFC 3986 §3.2.2, RFC 1034 §3.1). An IPv6 address
// keeps its brackets. Host accepts names, IPv4 addresses and IPv6 addresses. It returns [ErrHost]
// for everything else, including percent-encoding, userinfo and zones. It does not allocate for a
// name in lower case.
func Host(hostport string) (string, error) {
	if strings.HasPrefix(hostport, "[") {
		return literal(hostport)
	}
	name, port, _ := strings.Cut(hostport, ":")
	name = strings.TrimSuffix(name, ".")
	if name == "" || !isPort(port) {
		return "", ErrHost
	}
	for i := range len(name) {
		if classes[name[i]]&hostByte == 0 {
			return "", ErrHost
		}
	}
	return strings.ToLower(name), nil
}

// literal reads an IP-literal and its port (RFC 3986 §3.2.2). It returns the address in the form of
// RFC 5952.
func literal(hostport string) (string, error) {
	end := strings.IndexByte(hostport, ']')
	if end < 0 {
		return "", ErrHost
	}
	address, err := netip.ParseAddr(hostport[1:end])
	port, colon := strings.CutPrefix(hostport[end+1:], ":")
	if err != nil || !address.Is6() || address.Zone() != "" || !isPort(port) || (!colon && port != "") {
		return "", ErrHost
	}
	return "[" + address.String() + "]", nil
}

// isPort reports whether text is a port or empty (RFC 3986 §3.2.3).
func isPort(text string) bool {
	number := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' || i > 4 {
			return false
		}
		number = number*10 + int(text[i]-'0')
	}
	return number <= 65535
}
