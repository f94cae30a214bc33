package proxy

import (
	"slices"
	"strings"

	"snowgate/internal/request/fields"
	"snowgate/proxy/http1"
)

// The header fields by which the gateway tells a service who sends a request and how it came.
// Services trust them, so only the gateway may set them.
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

// common reports whether name is a field that nearly every message has and that may pass in both
// directions. It gives the same result as the rules below, and is faster.
func common(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Cache-Control", "Content-Encoding", "Content-Type",
		"Date", "Etag", "Expires", "Last-Modified", "Server", "Set-Cookie", "User-Agent", "Vary":
		return true
	}
	return false
}

// usual reports whether name has only letters, digits and dashes.
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

// maySend reports whether a client may send the field name to a service. name is in canonical form
// (see [http.CanonicalHeaderKey]). A trusted peer may also send forwarding fields. Framing and
// hop-by-hop fields never pass; the request to the service has its own. Authorization and
// Tracestate are decided by mayPass.
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

// mayRespond reports whether a service may send the field name to the client, in the header or in
// the trailer. A service must not repeat the identity fields, rename the request, or name other
// servers (Alt-Svc, RFC 7838), where there is no gateway.
func mayRespond(name string) bool {
	return common(name) || fields.KindOf(name) != fields.Identity && name != "Alt-Svc" && !hopByHop(name)
}

// cleanResponse removes from list the fields that a service must not send to the client, and those
// that its Connection names. It changes list.
func cleanResponse(list []http1.Field) []http1.Field {
	connection := optionsOf(valuesOf(list, "Connection"))
	return slices.DeleteFunc(list, func(f http1.Field) bool {
		return !mayRespond(f.Name) || connection.name(f.Name)
	})
}

// fewOptions is up to how many bytes of connection options each lookup scans them. Longer ones go
// into a set once, so that many options beside many fields do not cost quadratic time.
const fewOptions = 64

// connectionOptions are the options of the Connection fields of one message (RFC 9110 §7.6.1).
type connectionOptions struct {
	lines []string
	set   map[string]struct{} // of lines, in lower case; nil if they are short
}

// optionsOf returns the options in lines. The usual "keep-alive" names no field that could pass, so
// it counts as none.
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

// name reports whether the options name the field.
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
