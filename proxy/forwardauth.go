package proxy

import (
	"errors"
	"net/http"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// MatchForwardAuth is [Match] for requests that another proxy forwards and only asks about. Routes
// without upstreams count as well. A request without a route, or with a method that its route does
// not allow, gets 403: proxies that ask understand 401 and 403, and take anything else for a
// failure.
func MatchForwardAuth(router *Router) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route, err := match(router.layout(), r)
			if err == nil {
				err = route.refuseMethod(r)
			}
			if err != nil {
				problem.Write(w, r, forbidden403(err))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// forbidden403 turns 404 and 405 into 403.
func forbidden403(err error) error {
	var known *problem.Error
	if errors.As(err, &known) && (known.Status == http.StatusNotFound || known.Status == http.StatusMethodNotAllowed) {
		return problem.New(http.StatusForbidden, "No route of the gateway allows this request.", err)
	}
	return err
}

// Verdict responds with 200 to a request that was matched and authenticated. It sets every identity
// field, empty where there is no value, so that a proxy that copies them overwrites what its client
// sent.
func Verdict(w http.ResponseWriter, r *http.Request) {
	x := exchange.From(r.Context())
	if route := matched(x); route == nil || (!route.Public && x.Token.IsZero()) {
		problem.Write(w, r, problem.New(http.StatusInternalServerError, "", errNotJudged))
		return
	}
	header := w.Header()
	for _, name := range []string{headerClient, headerScope, headerTokenID, headerTokenExpires} {
		header[name] = []string{""}
	}
	for _, f := range appendIdentity(nil, x) {
		header[f.Name] = []string{f.Value}
	}
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}
