package proxy

import (
	"errors"
	"net/http"

	"snowgate/problem"
	"snowgate/request/exchange"
)

// MatchForwardAuth is [Match] for a request that is only judged here and that
// another proxy forwards: routes without upstreams count as well, and what has no
// route or a method that its route does not allow is 403, because proxies that
// ask for a verdict understand 401 and 403 and take anything else for a failure.
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

// forbidden403 words "there is no such place" for a proxy that asks.
func forbidden403(err error) error {
	var known *problem.Error
	if errors.As(err, &known) && (known.Status == http.StatusNotFound || known.Status == http.StatusMethodNotAllowed) {
		return problem.New(http.StatusForbidden, "No route of the gateway allows this request.", err)
	}
	return err
}

// Verdict answers a request that was matched and judged with 200 and every
// identity header, empty where there is nothing to say, so that a proxy that
// copies them overwrites what its client sent.
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
