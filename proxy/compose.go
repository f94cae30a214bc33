package proxy

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"snowgate/internal/request/exchange"
	"snowgate/proxy/http1"
	"snowgate/proxy/route"
)

// fieldLists lends the memory for the header of a request to a service.
var fieldLists = sync.Pool{New: func() any { return new([]http1.Field) }}

// outgoing is a request to a service, with the memory that is lent to it.
type outgoing struct {
	http1.Request

	list  *[]http1.Field   // of the header
	small *[smallBody]byte // for what was read ahead of the body; nil: nothing was
	ahead bool             // the whole body was read ahead, so no other goroutine reads it
}

// compose builds the request to the service, without what depends on the replica. It passes on what
// the client may send, and appends the fields of the gateway after that, so that the Connection
// field of the client cannot remove them.
func (o *outgoing) compose(in *http.Request, x *exchange.Exchange, policy *route.Policy, body *clientBody) {
	o.list, _ = fieldLists.Get().(*[]http1.Field)
	list := appendPassed((*o.list)[:0], in, x, policy)
	list = policy.EditRequest.Apply(list) // which cannot touch what follows
	if upgrading(in, policy, body) {
		list = append(list, http1.Field{Name: "Connection", Value: "Upgrade"}, http1.Field{Name: "Upgrade", Value: in.Header["Upgrade"][0]})
	}
	list = appendTrace(list, in.Header, x.RequestID)
	list = appendForwarded(list, in, x)
	list = appendIdentity(list, x)
	sortFields(list)
	*o.list = list
	o.Request = http1.Request{Method: in.Method, Query: in.URL.RawQuery, HasQuery: in.URL.ForceQuery, Header: list}
	if body != nil {
		o.Length = in.ContentLength
		o.Expect = in.ProtoAtLeast(1, 1) && names(in.Header["Expect"], "100-continue")
		o.readAhead(in, body)
		if !o.ahead {
			o.Body = body
		}
	}
}

// sortFields sorts fields by name and keeps the order of equal names. There are few fields, and
// those of the gateway are sorted, so insertion sort is fast. Above 32 fields it uses the sort of
// the standard library.
func sortFields(list []http1.Field) {
	const few = 32
	if len(list) > few {
		slices.SortStableFunc(list, func(a, b http1.Field) int { return strings.Compare(a.Name, b.Name) })
		return
	}
	for i := 1; i < len(list); i++ {
		for j := i; j > 0 && list[j].Name < list[j-1].Name; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

// giveBack gives the memory of the request back.
func (o *outgoing) giveBack() {
	if o.list != nil {
		clear(*o.list)
		fieldLists.Put(o.list)
	}
	if o.small != nil {
		clear(o.Begun)
		smallBodies.Put(o.small)
	}
}

// readAhead reads what has come of a small body together with its header, so that one write sends
// both and, if that is all of it, no other goroutine is needed to send it. It waits for nothing:
// the service may respond before the client has sent the rest. A client that expects
// 100 Continue is left alone, because reading would tell it to go on.
//
// This saves a 1 KiB POST about a fifth of its processor time (docs/explained/performance-log.md).
// TestSmallBodies and TestBodiesAreNotMixed fail when a body is cut, doubled, or another's.
func (o *outgoing) readAhead(in *http.Request, body *clientBody) {
	length := in.ContentLength
	if in.ProtoMajor != 1 || length <= 0 || length > smallBody || in.Header["Expect"] != nil {
		return
	}
	connection := exchange.ConnectionOf(in.Context())
	if connection == nil || connection.Input == nil {
		return
	}
	o.small, _ = smallBodies.Get().(*[smallBody]byte)
	begun := o.small[:0]
	connection.Input.WithoutWaiting(func() {
		for {
			n, err := body.Read(begun[len(begun):length])
			begun = begun[:len(begun)+n]
			if n == 0 || err != nil {
				return
			}
		}
	})
	o.Begun, o.ahead = begun, body.whole() && int64(len(begun)) == length
}

// appendPassed appends the fields of the client that may pass.
func appendPassed(list []http1.Field, r *http.Request, x *exchange.Exchange, policy *route.Policy) []http1.Field {
	in := r.Header
	connection := optionsOf(in["Connection"])
	for name, values := range in {
		if !mayPass(name, r, x, policy) || connection.name(name) {
			continue
		}
		for _, value := range values {
			list = append(list, http1.Field{Name: name, Value: value})
		}
	}
	if names(in["Te"], "trailers") {
		list = append(list, http1.Field{Name: "Te", Value: "trailers"}) // so are we; gRPC insists on it
	}
	return list
}

// mayPass reports whether the field name of the client passes on this route.
func mayPass(name string, in *http.Request, x *exchange.Exchange, policy *route.Policy) bool {
	switch name {
	case "Authorization":
		return policy.PassToken
	case "Expect":
		return in.ProtoAtLeast(1, 1) // RFC 9110 §10.1.1
	case headerTracestate:
		return continuesTrace(in.Header)
	}
	return maySend(name, x.PeerTrusted)
}

// upgrading reports whether the request may become a WebSocket (RFC 6455 §4.1). The gateway
// negotiates no other protocol: after one, it would see the first request only. A handshake must
// have no body, because the upload and the tunnel would both read from the client.
func upgrading(in *http.Request, policy *route.Policy, body *clientBody) bool {
	upgrade := in.Header["Upgrade"]
	return policy.WebSocket && body == nil && in.Method == http.MethodGet &&
		in.ProtoMajor == 1 && in.ProtoMinor > 0 &&
		len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") &&
		names(in.Header["Connection"], "upgrade")
}

// forwardedPath returns the path that is forwarded, in the encoding it was received in.
func forwardedPath(x *exchange.Exchange, policy *route.Policy) string {
	raw := x.Path.Raw
	if policy.StripPrefix {
		raw = strip(raw, policy.Segments)
	}
	return policy.AddPrefix + raw
}

// strip removes the first segments of a canonical path. The result starts with a slash. It counts
// segments instead of comparing text, because the client may have encoded more characters than the
// configuration.
func strip(raw string, segments int) string {
	for range segments {
		end := strings.IndexByte(raw[1:], '/')
		if end < 0 {
			return "/"
		}
		raw = raw[1+end:]
	}
	return raw
}

// appendForwarded appends the X-Forwarded-* fields. It continues those of a trusted proxy; those of
// anybody else were removed before.
func appendForwarded(list []http1.Field, in *http.Request, x *exchange.Exchange) []http1.Field {
	host, proto, chain := in.Host, "http", ""
	if in.TLS != nil {
		proto = "https"
	}
	if x.Peer != nil {
		chain = x.Peer.Text
	}
	if x.PeerTrusted {
		host = onlyOr(in.Header[headerForwardedHost], host)
		proto = onlyOr(in.Header[headerForwardedProto], proto)
		if said := strings.Join(in.Header[headerForwardedFor], ", "); said != "" {
			chain = strings.TrimSuffix(said+", "+chain, ", ")
		}
	}
	if chain != "" {
		list = append(list, http1.Field{Name: headerForwardedFor, Value: chain})
	}
	return append(list, http1.Field{Name: headerForwardedHost, Value: host}, http1.Field{Name: headerForwardedProto, Value: proto})
}

// onlyOr returns the value of a field that was sent exactly once, else fallback.
func onlyOr(values []string, fallback string) string {
	if len(values) == 1 && values[0] != "" {
		return values[0]
	}
	return fallback
}

// appendIdentity appends the identity of the caller. A public route has none.
func appendIdentity(list []http1.Field, x *exchange.Exchange) []http1.Field {
	list = append(list, http1.Field{Name: headerRequestID, Value: x.RequestID})
	if x.Token.IsZero() {
		return list
	}
	return append(list,
		http1.Field{Name: headerClient, Value: x.Token.Client},
		http1.Field{Name: headerScope, Value: x.Token.Scope.String()},
		http1.Field{Name: headerTokenExpires, Value: x.Token.ExpiresAt.UTC().Format(time.RFC3339)},
		http1.Field{Name: headerTokenID, Value: x.TokenID})
}

// hostFor returns the Host field for the service at t.
func hostFor(t *route.Target, in *http.Request, policy *route.Policy) string {
	switch {
	case policy.HostHeader != "":
		return policy.HostHeader
	case policy.UpstreamHost:
		return t.Host
	default:
		return in.Host
	}
}
