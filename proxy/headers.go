package proxy

import (
	"net/http"
	"strings"
)

// The header fields that tell a service who asks and how the request came to
// it. Services believe them, so nobody else may say them.
const (
	headerClient         = "X-Snowgate-Client"
	headerScope          = "X-Snowgate-Scope"
	headerTokenID        = "X-Snowgate-Token-Id"
	headerTokenExpires   = "X-Snowgate-Token-Expires"
	headerRequestID      = "X-Request-Id"
	headerForwardedFor   = "X-Forwarded-For"
	headerForwardedHost  = "X-Forwarded-Host"
	headerForwardedProto = "X-Forwarded-Proto"
	headerTraceparent    = "Traceparent"
	headerTracestate     = "Tracestate"
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

// kind is what the gateway makes of a header field that somebody sent.
type kind uint8

const (
	ordinary   kind = iota // passes
	identity               // only the gateway says it
	forwarding             // passes from a trusted proxy, in its usual spelling
	spelling               // passes in its usual spelling only
	forbidden              // never passes
)

// kindOf tells what the gateway makes of the field name.
func kindOf(name string) kind {
	var buf [maxFolded]byte
	switch folded := fold(name, &buf); string(folded) {
	case "xrequestid", "xforwardedfor", "xforwardedhost", "xforwardedproto", "traceparent":
		return identity
	case "forwarded", "xrealip", "trueclientip",
		"xclientip", "clientip", "xclusterclientip", "cfconnectingip", "fastlyclientip",
		"xoriginalforwardedfor", "xoriginalhost", "xoriginalproto":
		return forwarding
	case "authorization", "tracestate",
		"host", "contentlength", "transferencoding", "connection", "upgrade", "keepalive", "trailer":
		return spelling
	case "xoriginalurl", "xoriginaluri", "xoriginalmethod", "xrewriteurl", "xrewriteuri",
		"xhttpmethodoverride", "xhttpmethod", "xmethodoverride",
		"proxy", // HTTP_PROXY to a CGI program ("httpoxy")
		"proxyauthorization", "proxyauthenticate", "proxyconnection", "http2settings":
		return forbidden
	default:
		return kindOfFamily(string(folded))
	}
}

func kindOfFamily(folded string) kind {
	switch {
	case strings.HasPrefix(folded, "xsnowgate"):
		return identity
	case strings.HasPrefix(folded, "xforwarded"):
		return forwarding
	default:
		return ordinary
	}
}

// usual reports whether name is spelled with letters, digits and dashes only.
func usual(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// usualSpelling holds the spelling, canonical for net/http, of the fields that
// pass in no other.
var usualSpelling = map[string]bool{
	"Authorization": true, headerTracestate: true,
	"Content-Length": true, "Connection": true, "Upgrade": true,
}

// cleanRequest removes from h what a client may not say. A trusted peer may say
// how the request came to it.
func cleanRequest(h http.Header, trusted bool) {
	for name := range h {
		switch kindOf(name) {
		case ordinary:
		case forwarding:
			if !trusted || !usual(name) {
				delete(h, name)
			}
		case spelling:
			if !usualSpelling[name] {
				delete(h, name)
			}
		default:
			delete(h, name)
		}
	}
}

// cleanAnswer removes from h, the header or the trailer of an answer, what a
// service may not say to the caller: what we told it, another name for the
// request, and other places to be found at (RFC 7838), where no gateway is.
func cleanAnswer(h http.Header) {
	for name := range h {
		if kindOf(name) == identity || name == "Alt-Svc" {
			delete(h, name)
		}
	}
}

// hopByHop are the fields that concern one connection (RFC 9110 §7.6.1).
var hopByHop = [...]string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// removeHopByHop removes the fields that Connection names and those that are
// hop-by-hop by themselves.
func removeHopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.Trim(name, " \t"))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}
