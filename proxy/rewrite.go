package proxy

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"snowgate/proxy/http1"
	"snowgate/request/exchange"
)

// fieldLists lends the memory for the header of a request to a service.
var fieldLists = sync.Pool{New: func() any { return new([]http1.Field) }}

// compose makes the request to the service of what the client has sent, but for what
// depends on the replica. Only what the client may say is passed on, and what the
// gateway says comes after it, so that nothing of that can be taken away by the
// client's Connection.
func (f *flight) compose() {
	f.list, _ = fieldLists.Get().(*[]http1.Field)
	list := f.appendPassed((*f.list)[:0])
	list = f.route.EditRequest.apply(list) // which cannot touch what follows
	if f.upgrading() {
		list = append(list, http1.Field{Name: "Connection", Value: "Upgrade"}, http1.Field{Name: "Upgrade", Value: f.request.Header["Upgrade"][0]})
	}
	list = appendTrace(list, f.request.Header, f.exchange.RequestID)
	list = appendForwarded(list, f.request, f.exchange)
	list = appendIdentity(list, f.exchange)
	sortFields(list)
	*f.list = list
	f.outgoing = http1.Request{
		Method: f.request.Method, Query: f.request.URL.RawQuery, HasQuery: f.request.URL.ForceQuery,
		Header: list, Interim: f.interim,
	}
	if f.body != nil {
		f.outgoing.Length = f.request.ContentLength
		f.outgoing.Expect = f.request.ProtoAtLeast(1, 1) && names(f.request.Header["Expect"], "100-continue")
		f.readAhead()
		if !f.ahead {
			f.outgoing.Body = f.body
		}
	}
}

// sortFields puts fields into the order of their names, and leaves those with the same name
// as they are. There are few, and those of the gateway come in order, so it inserts one after
// the other; a client that sends hundreds is not to make that dear.
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

// decompose gives the memory of the request back.
func (f *flight) decompose() {
	if f.list != nil {
		clear(*f.list)
		fieldLists.Put(f.list)
	}
	if f.small != nil {
		clear(f.outgoing.Begun)
		smallBodies.Put(f.small)
	}
}

// appendPassed appends the fields of the client that are passed on.
func (f *flight) appendPassed(list []http1.Field) []http1.Field {
	in := f.request.Header
	connection := naming(in["Connection"])
	for name, values := range in {
		if !f.mayPass(name) || connection.name(name) {
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

// mayPass reports whether the field name of the client is passed on.
func (f *flight) mayPass(name string) bool {
	switch name {
	case "Authorization":
		return f.route.PassToken
	case "Expect":
		return f.request.ProtoAtLeast(1, 1) // RFC 9110 §10.1.1
	case headerTracestate:
		return continuesTrace(f.request.Header)
	}
	return mayAsk(name, f.exchange.PeerTrusted)
}

// upgrading reports whether the request may become a WebSocket (RFC 6455 §4.1).
// No other protocol is ever negotiated: behind one, the gateway would judge the
// first request only. A handshake has no body: while the body is sent on, the goroutine that
// does so reads from the client, and so would the tunnel.
func (f *flight) upgrading() bool {
	upgrade := f.request.Header["Upgrade"]
	return f.route.WebSocket && f.body == nil && f.request.Method == http.MethodGet &&
		f.request.ProtoMajor == 1 && f.request.ProtoMinor > 0 &&
		len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") &&
		names(f.request.Header["Connection"], "upgrade")
}

// forwarded returns the path that is forwarded, in the encoding it was received
// in.
func (f *flight) forwarded() string {
	raw := f.exchange.Path.Raw
	if f.route.StripPrefix {
		raw = strip(raw, f.route.segments)
	}
	return f.route.AddPrefix + raw
}

// strip removes the first segments from a canonical path. What is left starts
// with a slash. It counts instead of comparing, because a segment of the prefix
// may be received with more characters encoded than the route is written with.
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

// appendForwarded tells how the request came to the gateway. What a trusted proxy
// said of that is continued, what anybody else said is gone already.
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

// appendIdentity tells who asks. On a public route nobody does.
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
