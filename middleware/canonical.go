package middleware

import (
	"net/http"
	"net/url"
	"strings"

	"snowgate/internal/problem"
	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
)

// knownMethods is what a resource of the gateway can be asked with at all.
const knownMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// Canonical refuses, before anything is routed, every request whose target has
// more than one reading (400), and CONNECT and TRACE (405). Behind it the
// exchange has the canonical path, and r.URL agrees with it: its Path is what
// routes are compared with and its RawPath is empty, unless the path has an
// encoded slash. Routers that prefer RawPath would otherwise judge an encoded
// path by another name than the decoded one.
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

// NoEncodedSlash responds with 400 to a path with an encoded slash. It belongs in
// front of the gateway's own endpoints; for routes each one decides.
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

// agree returns u with the path that was found to be its only reading.
func agree(u *url.URL, path canonical.Path) *url.URL {
	decoded, raw := path.Match, ""
	if path.EncodedSlash {
		raw = path.Raw
		if unescaped, err := url.PathUnescape(path.Raw); err == nil { // always, for a canonical path
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

// sentence makes a public sentence of a reason, which is a constant text.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
