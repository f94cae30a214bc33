package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"

	"snowgate/proxy/http1"
)

// errTwice means that net/http was about to send a request again that must not be repeated, or not
// on that connection.
var errTwice = errors.New("proxy: the service closed the connection and the request may not be sent to it again")

// standard is the [Transport] for TLS and HTTP/2. It uses that of net/http.
type standard struct {
	*http.Transport

	retired atomic.Bool // no connection is to be kept any more
}

func newStandard(address string, p Protocol, dial Dialer) *standard {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(p != H2C)
	protocols.SetHTTP2(p == Negotiated)
	protocols.SetUnencryptedHTTP2(p == H2C)
	return &standard{Transport: &http.Transport{
		Proxy: nil, // the environment has no say in where requests go
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, address)
		},
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // bodies are passed on, not understood
		MaxIdleConns:           0,    // no total
		MaxIdleConnsPerHost:    idlePerUpstream,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: keepAliveInterval, PingTimeout: pingTimeout},
	}}
}

// RoundTrip sends r. A request with a trailer gets a connection of its own. If a service has
// responded early and reset the stream, Go's net/http takes a late trailer for a protocol error of
// the whole connection, where RFC 9113 §5.1 has it ignore the frame; all other requests on the
// connection would fail. TestTrailersApart and the torture show it.
// TestLateTrailersEndTheConnection fails when net/http has changed.
func (s *standard) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(r.Trailer) == 0 {
		return s.Transport.RoundTrip(r)
	}
	own := s.Transport.Clone()
	own.DisableKeepAlives = true // the connection ends with the stream
	return own.RoundTrip(r)
}

// CloseIdleConnections closes idle connections. From then on no connection is kept for reuse.
func (s *standard) CloseIdleConnections() {
	s.retired.Store(true)
	s.Transport.CloseIdleConnections()
}

// ended is called at the end of an attempt. An attempt that began after CloseIdleConnections has
// made net/http keep connections again.
func (s *standard) ended() {
	if s.retired.Load() {
		s.Transport.CloseIdleConnections()
	}
}

func (s *standard) Send(a *Attempt) (Response, error) {
	ctx := a.Lifetime.Context()
	if a.Others {
		ctx = context.WithValue(ctx, failoverKey{}, true)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t, interim := &trial{attempt: a, cancel: cancel}, 0
	tell := a.Request.Interim // a goroutine of net/http may be late, when a serves another attempt
	trace := &httptrace.ClientTrace{
		GotConn:              t.gotConnection,
		GotFirstResponseByte: func() { t.heard.Store(true) },
		Got1xxResponse: func(status int, header textproto.MIMEHeader) error { // lifts net/http's own bound
			if interim++; interim == http1.MaxInterim {
				return fmt.Errorf("%w: more than %d interim ones", http1.ErrResponse, http1.MaxInterim)
			}
			return tell(status, listOf(http.Header(header)))
		},
	}
	r := requestOf(a.To, a.Request)
	if a.To.Protocol == H2C {
		a.Trailer.ForwardTrailer(r)
	}
	response, err := s.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	a.Reused, a.Heard = t.reused, t.heard.Load()
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errTwice) {
			err = fmt.Errorf("%w: %w", errTwice, err)
		}
		cancel(nil)
		return Response{}, err
	}
	return readResponse(response, func() {
		cancel(nil)
		s.ended()
	}), nil
}

func (s *standard) Probe(ctx context.Context, to *Destination, r *http1.Request) (Response, error) {
	response, err := s.RoundTrip(requestOf(to, r).WithContext(ctx))
	if err != nil {
		return Response{}, err
	}
	return readResponse(response, s.ended), nil
}

// requestOf returns r as a request of net/http.
func requestOf(to *Destination, r *http1.Request) *http.Request {
	u := &url.URL{Scheme: to.Scheme, Host: to.Host, RawPath: r.Path, Path: r.Path, RawQuery: r.Query, ForceQuery: r.HasQuery}
	if decoded, err := url.PathUnescape(r.Path); err == nil { // always, for a canonical path
		u.Path = decoded
	}
	out := &http.Request{Method: r.Method, URL: u, Host: r.Host, Header: make(http.Header, len(r.Header))}
	for _, f := range r.Header {
		out.Header[f.Name] = append(out.Header[f.Name], f.Value)
	}
	if _, said := out.Header["User-Agent"]; !said {
		out.Header["User-Agent"] = []string{""} // do not invent one
	}
	if body := bodyOf(r); body != nil {
		out.Body, out.ContentLength = io.NopCloser(body), r.Length
		if r.Body == nil && to.Protocol == H2C {
			// A service that ends its connection says which requests it has not looked at
			// (RFC 9113 §6.8). net/http sends such a request again if it can have the body again.
			out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bodyOf(r)), nil }
		}
	}
	return out
}

// bodyOf returns the whole body of r, nil if there is none. It copies what was read ahead, because
// net/http may read it after the exchange has ended.
func bodyOf(r *http1.Request) io.Reader {
	switch begun := bytes.NewReader(bytes.Clone(r.Begun)); {
	case len(r.Begun) == 0:
		return r.Body
	case r.Body == nil:
		return begun
	default:
		return io.MultiReader(begun, r.Body)
	}
}

// listOf returns h as a list.
func listOf(h http.Header) []http1.Field {
	list := make([]http1.Field, 0, len(h)+1)
	for name, values := range h {
		for _, value := range values {
			list = append(list, http1.Field{Name: name, Value: value})
		}
	}
	return list
}

// standardBody is the body of a response that net/http reads.
type standardBody struct {
	io.ReadCloser
	response *http.Response
	end      func() // of the attempt
}

func readResponse(r *http.Response, end func()) Response {
	if r.StatusCode == http.StatusNotModified && r.ContentLength > 0 {
		// The length is that of a 200. In HTTP/2, net/http misses a body of that length.
		_ = r.Body.Close()
		r.Body, r.ContentLength = http.NoBody, 0
	}
	a := Response{
		Status: r.StatusCode, Major: r.ProtoMajor, Header: listOf(r.Header), Length: r.ContentLength,
		Body: &standardBody{r.Body, r, end},
	}
	if len(r.Trailer) > 0 {
		var announced []string
		for name := range r.Trailer {
			announced = append(announced, name)
		}
		a.Header = append(a.Header, http1.Field{Name: "Trailer", Value: strings.Join(announced, ", ")})
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		a.Tunnel, _ = r.Body.(io.ReadWriteCloser)
	}
	return a
}

// Ready returns false unless there is no body: net/http does not tell.
func (b *standardBody) Ready() bool { return b.ReadCloser == http.NoBody }

// Trailer returns the trailer, which is complete at the end of the body.
func (b *standardBody) Trailer() []http1.Field { return listOf(b.response.Trailer) }

// Close ends the attempt.
func (b *standardBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// trial follows one attempt on an [http.Transport], which repeats requests by itself: as long as it
// has kept connections, and a POST with an Idempotency-Key as well.
type trial struct {
	attempt     *Attempt
	cancel      context.CancelCauseFunc
	connections int         // that the request was to be sent on
	reused      bool        // the last of them had carried other requests
	heard       atomic.Bool // a byte of a response has come
}

// gotConnection is called with each connection on which net/http is about to send the request. From
// the second one on, net/http repeats the request because a kept connection was closed.
func (t *trial) gotConnection(info httptrace.GotConnInfo) {
	a := t.attempt
	t.connections++
	t.reused = info.Reused
	if t.connections == 1 || !a.Repeats.Would || a.To.Protocol == H2C || isHTTP2(info) {
		return // what has no body but is not replayed had not been written
	}
	if a.Repeats.May && !a.Repeated {
		a.Repeated = true
		return
	}
	t.cancel(errTwice)
	_ = info.Conn.Close() // before anything is written to it
}

// isHTTP2 reports whether the connection speaks HTTP/2. There net/http repeats a request only if
// the service has said that it did not look at it.
func isHTTP2(info httptrace.GotConnInfo) bool {
	secure, ok := info.Conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}
