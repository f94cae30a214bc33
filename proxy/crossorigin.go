package proxy

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/proxy/http1"
	"snowgate/proxy/route"
)

// isPreflight reports whether r is a CORS preflight of a browser (Fetch Standard, "CORS-preflight
// fetch").
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// takesPreflight reports whether [CrossOrigin] answers r, whatever the methods of the route are.
func (p *entry) takesPreflight(r *http.Request) bool { return p.Cors != nil && isPreflight(r) }

var varyOrigin = []string{"Origin"}

// CrossOrigin returns a middleware for the routes that have a [route.CORS]. It answers preflights
// itself. For other requests it sets the CORS fields of the response, whoever writes that. It
// belongs after [Match] and before authentication, because a preflight carries no token.
//
// A preflight gets 204 in either case; the response to a refused one does not allow the request,
// and its cause is in the exchange. A request with several Origin fields gets 400.
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
				w.Header()["Vary"] = varyOrigin // a cache must not give this response to a page
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

// preflightRefusal returns why the preflight r was refused, nil if it was not.
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

// overrule removes from list, the header of a response of the service, the fields that the gateway
// sets itself in own: CORS fields, and Strict-Transport-Security, of which RFC 6797 §6.1 wants one.
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
