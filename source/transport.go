package source

import (
	"io"
	"net/http"
	"strings"
)

// maxDiscard bounds what is read of a 401 so that its connection can be used again, in bytes.
const maxDiscard = 64 << 10

// Transport returns an [http.RoundTripper] that adds the token to each request and sends it by
// base, [http.DefaultTransport] if base is nil. The request's context bounds the wait for a token.
//
// A 401 whose WWW-Authenticate says invalid_token drops the token. The request is then sent once
// more with a new token, if its body can be had again ([http.Request.GetBody]). A 401 without
// invalid_token is passed on as it is: another token would not help.
//
// A request that follows a redirect to another scheme, host or port goes without a token.
func (s *Source) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{source: s, base: base}
}

// transport implements [Source.Transport].
type transport struct {
	source *Source
	base   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if leftOrigin(request) {
		return t.base.RoundTrip(request)
	}
	token, err := t.source.Token(request.Context())
	if err != nil {
		closeBody(request)
		return nil, err
	}
	response, err := t.base.RoundTrip(withToken(request, token))
	if err != nil || !refusesToken(response) || !t.source.Drop(token.value) {
		return response, err
	}
	again, ok := rewind(request)
	if !ok {
		return response, nil
	}
	token, err = t.source.Token(request.Context())
	if err != nil {
		closeBody(again)
		return response, nil //nolint:nilerr // the caller gets the service's 401, which came first
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxDiscard)
	_ = response.Body.Close()
	return t.base.RoundTrip(withToken(again, token))
}

// leftOrigin reports whether request follows a redirect away from the scheme and host that the
// program called first. http.Client sets Response to the redirect.
func leftOrigin(request *http.Request) bool {
	first := request
	for first.Response != nil {
		if first = first.Response.Request; first == nil {
			return true // a transport that does not say what it sent: better no token
		}
		if first.URL.Scheme != request.URL.Scheme || !strings.EqualFold(first.URL.Host, request.URL.Host) {
			return true
		}
	}
	return false
}

// withToken returns a copy of request with the token: a RoundTripper must not change its request.
func withToken(request *http.Request, token Token) *http.Request {
	sent := request.Clone(request.Context())
	if sent.Header == nil {
		sent.Header = make(http.Header)
	}
	sent.Header.Set("Authorization", "Bearer "+token.value)
	return sent
}

// rewind returns request with its body from the start; ok is false if the body cannot be had again.
func rewind(request *http.Request) (again *http.Request, ok bool) {
	if request.Body == nil || request.Body == http.NoBody {
		return request, true
	}
	if request.GetBody == nil {
		return nil, false
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, false
	}
	again = request.Clone(request.Context())
	again.Body = body
	return again, true
}

// refusesToken reports whether a response says that another token may help (RFC 6750 §3.1).
func refusesToken(response *http.Response) bool {
	if response.StatusCode != http.StatusUnauthorized {
		return false
	}
	for _, challenge := range response.Header.Values("WWW-Authenticate") {
		if strings.Contains(challenge, `error="invalid_token"`) || strings.Contains(challenge, "error=invalid_token") {
			return true
		}
	}
	return false
}

// closeBody closes the body of a request that is not sent, as RoundTrip must.
func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}
