package middleware

import (
	"net/http"
	"net/url"
	"strings"

	"snowgate/internal/problem"
	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
)

// Fields in which a proxy describes the request to be judged.
const (
	headerForwardedMethod = "X-Forwarded-Method"
	headerForwardedURI    = "X-Forwarded-Uri"
	headerForwardedHost   = "X-Forwarded-Host"
)

// ForwardAuth turns a request of a proxy that asks for a verdict (nginx auth_request, Traefik
// ForwardAuth, Caddy forward_auth) into the request that it asks about, as X-Forwarded-Method,
// X-Forwarded-Uri and X-Forwarded-Host describe it: the handlers behind it see the method, host and
// canonical path of the described request. The credentials are those that the proxy passes on in
// Authorization.
//
// Only trusted proxies may describe a request. The response is 400 to anybody else, to an
// incomplete description, to a target with more than one reading, and to a field that is another
// spelling of one of ours, which the proxy would pass on to the service.
func ForwardAuth() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := exchange.From(r.Context())
			if !x.PeerTrusted {
				problem.Write(w, r, problem.New(http.StatusBadRequest,
					"Only a proxy whose address is in SNOWGATE_TRUSTED_PROXIES may ask for a verdict.", nil))
				return
			}
			if err := refuseSpellings(r.Header); err != nil {
				problem.Write(w, r, err)
				return
			}
			described, path, err := describedRequest(r)
			if err != nil {
				problem.Write(w, r, err)
				return
			}
			x.Path = path
			next.ServeHTTP(w, described)
		})
	}
}

// describedRequest returns the request that the fields of r describe.
func describedRequest(r *http.Request) (*http.Request, canonical.Path, error) {
	method, uri, host := single(r, headerForwardedMethod), single(r, headerForwardedURI), single(r, headerForwardedHost)
	if method == "" || uri == "" || host == "" {
		return nil, canonical.Path{}, problem.New(http.StatusBadRequest,
			"The request needs X-Forwarded-Method, X-Forwarded-Uri and X-Forwarded-Host, each once.", nil)
	}
	if strings.ContainsFunc(uri, func(c rune) bool { return c == '#' || c <= ' ' || c == 0x7f }) {
		return nil, canonical.Path{}, problem.New(http.StatusBadRequest,
			"X-Forwarded-Uri has a fragment, a space or a control character. Send path and query only.", nil)
	}
	raw, query, _ := strings.Cut(uri, "?")
	path, err := canonical.ParsePath(raw)
	if err != nil {
		return nil, canonical.Path{}, problem.New(http.StatusBadRequest, sentence(err), err)
	}
	if _, err := canonical.Host(host); err != nil {
		return nil, canonical.Path{}, problem.New(http.StatusBadRequest, sentence(err), err)
	}
	described := *r
	described.Method, described.Host = method, host
	described.URL = agree(&url.URL{Path: path.Match, RawQuery: query}, path)
	return &described, path, nil
}

// single returns the value of a field that was sent exactly once, otherwise the empty string.
func single(r *http.Request, name string) string {
	if values := r.Header[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}
