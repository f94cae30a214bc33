package middleware

import (
	"net/http"
	"net/url"
	"strings"

	"snowgate/internal/problem"
	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
)

// knownMethods are the methods that any resource of the gateway may allow.
const knownMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// Canonical refuses, before anything is routed, every request whose target has more than one
// reading (400), and CONNECT and TRACE (405). For the handlers behind it, the exchange has the
// canonical path, and r.URL agrees with that path: routes are compared with its Path, and its
// RawPath is empty unless the path has an encoded slash. Otherwise routers that prefer RawPath
// would match an encoded path differently from the decoded one.
func Canonical() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
				problem.Write(w, r, problem.MethodNotAllowed(knownMethods))
				return
			}
			path, err := canonical.FromRequest(r)
			if err != nil {
				problem.Write(w, r, problem.New(http.StatusBadRequest, sentence(err), err))
				return
			}
			exchange.From(r.Context()).Path = path
			r.URL = agree(r.URL, path)
			next.ServeHTTP(w, r)
		})
	}
}

// NoEncodedSlash responds with 400 to a path with an encoded slash. Use it for the gateway's own
// endpoints; each route decides for itself.
func NoEncodedSlash() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if exchange.From(r.Context()).Path.EncodedSlash {
				problem.Write(w, r, problem.New(http.StatusBadRequest, "The path has an encoded slash.", nil))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// agree returns u with the canonical path.
func agree(u *url.URL, path canonical.Path) *url.URL {
	decoded, raw := path.Match, ""
	if path.EncodedSlash {
		raw = path.Raw
		if unescaped, err := url.PathUnescape(path.Raw); err == nil { // always succeeds for a canonical path
			decoded = unescaped
		}
	}
	if u.Path == decoded && u.RawPath == raw {
		return u
	}
	agreed := *u
	agreed.Path, agreed.RawPath = decoded, raw
	return &agreed
}

// sentence turns a reason, which is a constant text, into a sentence for the client.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
