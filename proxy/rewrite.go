package proxy

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"snowgate/exchange"
)

// rewrite makes the request to the service. ReverseProxy has removed the
// hop-by-hop fields by then, so nothing that is set here can be taken away by a
// Connection header of the client.
func (f *flight) rewrite(p *httputil.ProxyRequest) {
	f.rewritten = true
	out := p.Out
	out.URL.RawQuery = p.In.URL.RawQuery // ReverseProxy edits what it cannot parse
	out.Trailer = nil                    // fields after the body are checked by nobody
	cleanRequest(out.Header, f.exchange.PeerTrusted)
	if !f.route.PassToken {
		delete(out.Header, "Authorization")
	}
	if !f.upgrading() {
		delete(out.Header, "Connection")
		delete(out.Header, "Upgrade")
	}
	f.route.EditRequest.apply(out.Header) // which cannot touch what follows
	setForwarded(out.Header, p.In, f.exchange)
	setIdentity(out.Header, f.exchange)
	setTrace(out.Header, p.In.Header, f.exchange.RequestID)
}

// upgrading reports whether the request may become a WebSocket (RFC 6455 §4.1).
// No other protocol is ever negotiated: behind one, the gateway would judge the
// first request only.
func (f *flight) upgrading() bool {
	upgrade := f.request.Header["Upgrade"]
	return f.route.WebSocket && f.request.Method == http.MethodGet && f.request.ProtoMajor == 1 &&
		len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket")
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

// aim points u to path at t.
func aim(u *url.URL, t *target, path string) {
	raw := t.base + path
	u.Scheme, u.Host = t.scheme, t.host
	u.User, u.Opaque, u.Fragment, u.RawFragment = nil, "", "", ""
	u.RawPath, u.Path = raw, raw
	if decoded, err := url.PathUnescape(raw); err == nil { // always, for a canonical path
		u.Path = decoded
	}
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

// setForwarded tells how the request came to the gateway. What a trusted proxy
// said of that is continued, what anybody else said is gone already.
func setForwarded(out http.Header, in *http.Request, x *exchange.Exchange) {
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	var chain []string
	host := in.Host
	if x.PeerTrusted {
		chain = in.Header[headerForwardedFor]
		host = onlyOr(in.Header[headerForwardedHost], host)
		proto = onlyOr(in.Header[headerForwardedProto], proto)
		if said := in.Header["Forwarded"]; len(said) > 0 {
			out["Forwarded"] = said
		}
	}
	delete(out, headerForwardedFor)
	if x.Peer.IsValid() {
		chain = append(chain[:len(chain):len(chain)], x.Peer.String())
	}
	if len(chain) > 0 {
		out[headerForwardedFor] = []string{strings.Join(chain, ", ")}
	}
	out[headerForwardedHost] = []string{host}
	out[headerForwardedProto] = []string{proto}
}

// onlyOr returns the value of a field that was sent exactly once, else fallback.
func onlyOr(values []string, fallback string) string {
	if len(values) == 1 && values[0] != "" {
		return values[0]
	}
	return fallback
}

// setIdentity tells who asks. On a public route nobody does.
func setIdentity(out http.Header, x *exchange.Exchange) {
	out[headerRequestID] = []string{x.RequestID}
	if x.Token == nil {
		return
	}
	out[headerClient] = []string{x.Token.Client}
	out[headerScope] = []string{x.Token.Scope.String()}
	out[headerTokenID] = []string{x.TokenID}
	out[headerTokenExpires] = []string{x.Token.ExpiresAt.UTC().Format(time.RFC3339)}
}
