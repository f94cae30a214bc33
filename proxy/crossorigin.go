package proxy

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"snowgate/problem"
	"snowgate/proxy/http1"
	"snowgate/proxy/route"
	"snowgate/request/exchange"
)

// isPreflight reports whether r is the question of a browser whether it may make a
// request, and no request of a program (Fetch Standard, "CORS-preflight fetch").
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// takesPreflight reports whether r is answered by [CrossOrigin], whatever the
// methods of the route are.
func (p *entry) takesPreflight(r *http.Request) bool { return p.Cors != nil && isPreflight(r) }

var varyOrigin = []string{"Origin"}

// CrossOrigin speaks with browsers about the routes that have a [CORS]: it answers
// preflights, which never go further, and lays out for every other request what the
// browser is told with the answer, whoever makes that. It belongs behind [Match]
// and before the judgement of the token: a preflight carries none.
//
// A preflight is answered with 204 in either case; one that is refused does not say
// that the request is allowed, and the cause of that is in the exchange. Requests
// with several Origin fields are 400.
func CrossOrigin() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route := matched(exchange.From(r.Context()))
			if route == nil || route.Cors == nil {
				next.ServeHTTP(w, r)
				return
			}
			switch {
			case len(r.Header["Origin"]) > 1:
				problem.Write(w, r, problem.New(http.StatusBadRequest, "The request has more than one Origin.", nil))
				return
			case isPreflight(r):
				route.Cors.HandlerFunc(w, r)
				exchange.From(r.Context()).Cause = route.preflightRefusal(w, r)
				return
			case r.Header.Get("Origin") == "":
				w.Header()["Vary"] = varyOrigin // a cache must not give this answer to a page
			default:
				route.Cors.HandlerFunc(w, r)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// The causes of refused preflights.
var (
	errOrigin  = errors.New("proxy: preflight: the origin is not allowed")
	errMethod  = errors.New("proxy: preflight: the method is not allowed")
	errHeaders = errors.New("proxy: preflight: a header field is not allowed")
)

// preflightRefusal tells why the preflight r was answered without a permission, nil
// if it has one.
func (p *entry) preflightRefusal(w http.ResponseWriter, r *http.Request) error {
	switch {
	case w.Header()["Access-Control-Allow-Origin"] != nil:
		return nil
	case !p.Cors.OriginAllowed(r):
		return errOrigin
	case !slices.Contains(p.CORS.Methods, r.Header.Get("Access-Control-Request-Method")):
		return errMethod
	default:
		return errHeaders
	}
}

// overrule removes from list, the header of a response of the service, what the gateway says itself in
// own: to browsers about the route, and about TLS (RFC 6797 §6.1 wants one Strict-Transport-Security).
func overrule(own http.Header, policy *route.Policy, list []http1.Field) []http1.Field {
	secure := own["Strict-Transport-Security"] != nil
	if policy.Cors == nil && !secure {
		return list
	}
	return slices.DeleteFunc(list, func(field http1.Field) bool {
		return policy.Cors != nil && strings.HasPrefix(field.Name, "Access-Control-") ||
			secure && field.Name == "Strict-Transport-Security"
	})
}
