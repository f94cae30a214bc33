// Package fields knows the header fields of HTTP by what the gateway makes of
// them: which ones only it may say, which ones pass, and which ones an operator may
// set or remove. Names are compared by what is left of them without case and
// anything but letters and digits, as CGI-like services do.
package fields

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxFolded is the length to which names are folded. No name below is longer.
const maxFolded = 32

// fold writes name in lower case and without anything but letters and digits
// into buf. CGI-like services tell X_Snowgate_Client, X.Snowgate.Client and
// X-Snowgate-Client as little apart as this does.
func fold(name string, buf *[maxFolded]byte) []byte {
	folded := buf[:0]
	for i := 0; i < len(name) && len(folded) < maxFolded; i++ {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			folded = append(folded, c|0x20)
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			folded = append(folded, c)
		}
	}
	return folded
}

// Kind is what the gateway makes of a header field that somebody sends.
type Kind uint8

// The kinds of fields.
const (
	Ordinary   Kind = iota // passes
	Identity               // only the gateway says it
	Forwarding             // passes from a trusted proxy, in its usual spelling
	Spelling               // passes in its usual spelling only
	Forbidden              // never passes
)

// KindOf tells what the gateway makes of the field name. It does not allocate.
func KindOf(name string) Kind {
	var buf [maxFolded]byte
	switch folded := fold(name, &buf); string(folded) {
	case "xrequestid", "xforwardedfor", "xforwardedhost", "xforwardedproto", "traceparent":
		return Identity
	case "forwarded", "xrealip", "trueclientip",
		"xclientip", "clientip", "xclusterclientip", "cfconnectingip", "fastlyclientip",
		"xoriginalforwardedfor", "xoriginalhost", "xoriginalproto":
		return Forwarding
	case "authorization", "tracestate",
		"host", "contentlength", "transferencoding", "connection", "upgrade", "keepalive", "trailer":
		return Spelling
	case "xoriginalurl", "xoriginaluri", "xoriginalmethod", "xrewriteurl", "xrewriteuri",
		"xhttpmethodoverride", "xhttpmethod", "xmethodoverride",
		"proxy", // HTTP_PROXY to a CGI program ("httpoxy")
		"proxyauthorization", "proxyauthenticate", "proxyconnection", "http2settings":
		return Forbidden
	default:
		return kindOfFamily(string(folded))
	}
}

func kindOfFamily(folded string) Kind {
	switch {
	case strings.HasPrefix(folded, "xsnowgate"):
		return Identity
	case strings.HasPrefix(folded, "xforwarded"):
		return Forwarding
	default:
		return Ordinary
	}
}

// Same reports whether two names are the same to a CGI-like service.
func Same(a, b string) bool {
	for {
		x, restA := letter(a)
		y, restB := letter(b)
		if x != y || x == 0 {
			return x == y
		}
		a, b = restA, restB
	}
}

// letter returns the first letter or digit of name, in lower case, and what comes
// after it; 0 if there is none.
func letter(name string) (byte, string) {
	for i := range len(name) {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			return c | 0x20, name[i+1:]
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c, name[i+1:]
		}
	}
	return 0, ""
}

// HopByHop are the fields that concern one connection (RFC 9110 §7.6.1).
var HopByHop = [...]string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// framing are the fields that the gateway and net/http make of what they send.
var framing = [...]string{"host", "contentlength", "expect", "date"}

// Editable reports whether a route may set or remove the field name: it is one
// (RFC 9110 §5.1), only the gateway and those that it trusts speak of who asks, and
// nobody else of the connection. Authorization is editable: a service may want
// credentials of its own.
func Editable(name string) bool {
	if !httpguts.ValidHeaderFieldName(name) {
		return false
	}
	var buf [maxFolded]byte
	folded := string(fold(name, &buf))
	switch KindOf(name) {
	case Identity, Forbidden:
		return false
	case Spelling:
		return http.CanonicalHeaderKey(name) == "Authorization"
	}
	return !slices.Contains(framing[:], folded) && !slices.ContainsFunc(HopByHop[:], func(hop string) bool {
		var buf [maxFolded]byte
		return string(fold(hop, &buf)) == folded
	})
}

// ValidValue reports whether value may be that of a field (RFC 9110 §5.5): no
// control characters, no space around it.
func ValidValue(value string) bool {
	return httpguts.ValidHeaderFieldValue(value) && strings.TrimSpace(value) == value
}
