// Package fields classifies HTTP header fields: fields that only the gateway may set, fields that
// pass, and fields that an operator may set or remove. It compares names without regard to case,
// and by letters and digits only, as CGI-like services do.
package fields

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxFolded is the maximum length of a folded name. No name below is longer.
const maxFolded = 32

// fold writes the letters and digits of name into buf, in lower case. Like a CGI-like service, it
// does not distinguish X_Snowgate_Client, X.Snowgate.Client and X-Snowgate-Client.
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

// Kind says how the gateway treats a header field of a request.
type Kind uint8

// The kinds of fields.
const (
	Ordinary   Kind = iota // passes
	Identity               // only the gateway may set it
	Forwarding             // passes from a trusted proxy, in its usual spelling
	Spelling               // passes only in its usual spelling
	Forbidden              // never passes
)

// KindOf returns the kind of the field name. It does not allocate.
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

// Same reports whether a CGI-like service treats two names as the same.
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

// letter returns the first letter or digit of name in lower case, and the rest of name; 0 if there
// is none.
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

// HopByHop are the fields of a single connection (RFC 9110 §7.6.1).
var HopByHop = [...]string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// framing are the fields that the gateway and net/http set themselves.
var framing = [...]string{"host", "contentlength", "expect", "date"}

// Editable reports whether a route may set or remove the field name. The name must be valid (RFC
// 9110 §5.1). Identity and forbidden fields are not editable, nor are fields about the connection
// or the framing. Authorization is editable, because a service may need other credentials.
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

// ValidValue reports whether value is a valid field value (RFC 9110 §5.5): no control characters,
// and no space around it.
func ValidValue(value string) bool {
	return httpguts.ValidHeaderFieldValue(value) && strings.TrimSpace(value) == value
}
