package proxy

import (
	"slices"
	"strings"

	"snowgate/proxy/http1"
	"snowgate/request/fields"
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

// common reports whether name is one of those that are in nearly every message and may
// pass in both directions. It is only quicker than to find that out.
func common(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Cache-Control", "Content-Encoding", "Content-Type",
		"Date", "Etag", "Expires", "Last-Modified", "Server", "Set-Cookie", "User-Agent", "Vary":
		return true
	}
	return false
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

// hopByHop reports whether a field concerns one connection only.
func hopByHop(name string) bool { return slices.Contains(fields.HopByHop[:], name) }

// maySend reports whether a client may send the field name, which is in the spelling
// that is canonical for net/http, to a service. A trusted peer may say how the request
// came to it. Fields that frame a message or concern a connection are never passed on:
// where the request to the service needs one, it gets its own. Authorization and
// Tracestate are decided about elsewhere.
func maySend(name string, trusted bool) bool {
	if common(name) {
		return true
	}
	switch fields.KindOf(name) {
	case fields.Ordinary:
		return !hopByHop(name)
	case fields.Forwarding:
		return trusted && usual(name)
	default:
		return false
	}
}

// mayRespond reports whether a service may send the field name, in the header or the
// trailer of an answer, to the caller. It may not repeat what we told it, call the
// request by another name, or say other places to be found at (RFC 7838), where no
// gateway is.
func mayRespond(name string) bool {
	return common(name) || fields.KindOf(name) != fields.Identity && name != "Alt-Svc" && !hopByHop(name)
}

// cleanResponse removes from list, which it changes, what a service may not say to the
// caller, and the fields that its Connection names.
func cleanResponse(list []http1.Field) []http1.Field {
	connection := optionsOf(valuesOf(list, "Connection"))
	return slices.DeleteFunc(list, func(f http1.Field) bool {
		return !mayRespond(f.Name) || connection.name(f.Name)
	})
}

// fewOptions is how many bytes of options are looked through for every field. Of more, a set is
// made once, so that many options beside many fields are not dear.
const fewOptions = 64

// connectionOptions are what Connection says.
type connectionOptions struct {
	lines []string
	set   map[string]struct{} // of lines, in lower case; nil if they are short
}

// optionsOf returns what lines of Connection say, or nothing if that is the usual, which names a
// field that never passes.
func optionsOf(lines []string) connectionOptions {
	if len(lines) == 1 && lines[0] == "keep-alive" {
		return connectionOptions{}
	}
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	if size <= fewOptions {
		return connectionOptions{lines: lines}
	}
	set := make(map[string]struct{})
	for _, line := range lines {
		for option := range strings.SplitSeq(line, ",") {
			set[strings.ToLower(strings.Trim(option, " \t"))] = struct{}{}
		}
	}
	return connectionOptions{set: set}
}

// name reports whether the field name is among the options.
func (o connectionOptions) name(name string) bool {
	if o.set != nil {
		_, found := o.set[strings.ToLower(name)]
		return found
	}
	return names(o.lines, name)
}

// valuesOf returns the values of the field name, nil if there is none.
func valuesOf(list []http1.Field, name string) (values []string) {
	for _, f := range list {
		if f.Name == name {
			values = append(values, f.Value)
		}
	}
	return values
}

// names reports whether option is among the comma-separated ones of lines.
func names(lines []string, option string) bool {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(name, " \t"), option) {
				return true
			}
		}
	}
	return false
}
