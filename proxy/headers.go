package proxy

import (
	"net/http"
	"strings"

	"snowgate/fields"
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
		switch fields.KindOf(name) {
		case fields.Ordinary:
		case fields.Forwarding:
			if !trusted || !usual(name) {
				delete(h, name)
			}
		case fields.Spelling:
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
		if fields.KindOf(name) == fields.Identity || name == "Alt-Svc" {
			delete(h, name)
		}
	}
}

// removeHopByHop removes the fields that Connection names and those that are
// hop-by-hop by themselves.
func removeHopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.Trim(name, " \t"))
		}
	}
	for _, name := range fields.HopByHop {
		delete(h, name)
	}
}
