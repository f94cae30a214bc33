package gateway

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/internal/scope"
	"snowgate/middleware"
	"snowgate/proxy"
	"snowgate/tokens"
)

// Bounds of a request to an endpoint of the gateway.
const (
	formSize     = 16 << 10
	documentSize = 64 << 10 // to the admin API
	formTime     = 10 * time.Second
)

// forwardAuthPath is where other proxies ask for a verdict.
const forwardAuthPath = "/oauth2/auth"

// ownPaths are the paths that the gateway serves itself, with everything below them; no route may
// lie there.
var ownPaths = []string{
	"/oauth2",
	handlers.ServerMetadataPath,
	handlers.ResourceMetadataPath,
	"/livez",
	"/readyz",
}

// publicHandler is the whole surface of the public listener. It hands requests for a route to
// forward once they have passed authentication.
func (g *Gateway) publicHandler(forward http.Handler) http.Handler {
	own := g.ownEndpoints()
	// Everything else belongs to the routes, whatever the method is.
	routes := chi.Chain(
		proxy.Match(g.routing.router),
		proxy.CrossOrigin(),
		middleware.Authenticate(g.shared.tokens, proxy.Challenge(g.endpoints.challenge), proxy.Requirement),
	).Handler(forward)

	return chi.Chain(
		middleware.Observe(g.observation("")),
		strictTransport(g.cfg.HSTS),
		middleware.Recover(),
		middleware.Drain(g.drainer),
		middleware.Framing(),
		middleware.Canonical(),
	).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isOwn(exchange.From(r.Context()).Path.Match) {
			own.ServeHTTP(w, r)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// ownEndpoints serves the gateway's own paths and everything below them. They are registered for
// every method, so that none of them falls through.
func (g *Gateway) ownEndpoints() http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.NoEncodedSlash())
	r.Group(func(r chi.Router) {
		r.Use(endpoint)
		own := chi.Chain(middleware.LimitBody(formSize, formTime))
		r.Handle(handlers.TokenPath, own.Handler(problem.OAuthHandlerFunc(g.endpoints.oauth.Token)))
		r.Handle(handlers.IntrospectPath, own.Handler(problem.OAuthHandlerFunc(g.endpoints.oauth.Introspect)))
		r.Handle(handlers.RevokePath, own.Handler(problem.OAuthHandlerFunc(g.endpoints.oauth.Revoke)))
		r.Handle(handlers.ServerMetadataPath+g.endpoints.metadata.Suffix(), problem.HandlerFunc(g.endpoints.metadata.Server))
		r.Handle(handlers.ResourceMetadataPath+g.endpoints.metadata.Suffix(), problem.HandlerFunc(g.endpoints.metadata.Resource))
		r.Handle("/livez", problem.HandlerFunc(g.endpoints.health.Live))
		r.Handle("/readyz", problem.HandlerFunc(g.endpoints.health.Ready))
		r.Handle(forwardAuthPath, g.forwardAuth())
		r.Handle(handlers.AuthorizePath, problem.HandlerFunc(g.endpoints.metadata.Authorize))
		r.Handle(handlers.ResourceMetadataPath+"/*", problem.HandlerFunc(g.endpoints.metadata.ResourceOfRoute))
		for _, path := range slices.DeleteFunc(slices.Clone(ownPaths), func(path string) bool { return path == handlers.ResourceMetadataPath }) {
			r.Handle(path+"/*", problem.HandlerFunc(notFound))
		}
		r.Handle("/oauth2", problem.HandlerFunc(notFound))
	})
	r.NotFound(problem.HandlerFunc(notFound).ServeHTTP)
	// chi knows ten methods, and takes all others for not allowed.
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		path := exchange.From(r.Context()).Path.Match
		if path == forwardAuthPath {
			g.forwardAuth().ServeHTTP(w, r)
			return
		}
		refuseMethod(w, r, path)
	})
	return r
}

// forwardAuth judges requests that another proxy describes and forwards itself.
func (g *Gateway) forwardAuth() http.Handler {
	return chi.Chain(
		middleware.ForwardAuth(),
		proxy.MatchForwardAuth(g.routing.router),
		middleware.Authenticate(g.shared.tokens, proxy.Challenge(g.endpoints.challenge), proxy.Requirement),
	).HandlerFunc(proxy.Verdict)
}

// refuseMethod responds to a request with a method that chi does not know for one of
// the gateway's own endpoints.
func refuseMethod(w http.ResponseWriter, r *http.Request, path string) {
	switch path {
	case handlers.TokenPath, handlers.IntrospectPath, handlers.RevokePath:
		problem.OAuthHandlerFunc(nil).ServeHTTP(w, r) // refuses everything but POST
	default:
		problem.Write(w, r, problem.MethodNotAllowed("GET, HEAD"))
	}
}

// isOwn reports whether path is the gateway's own.
func isOwn(path string) bool {
	return slices.ContainsFunc(ownPaths, func(own string) bool {
		rest, ok := strings.CutPrefix(path, own)
		return ok && (rest == "" || rest[0] == '/')
	})
}

// adminHandler is the whole surface of the admin listener.
func (g *Gateway) adminHandler() http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Observe(g.observation("admin ")), middleware.Recover())
	// Every path takes every method that chi knows, so this is for the others
	// (RFC 9110 §15.6.2).
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, problem.New(http.StatusNotImplemented, "", nil))
	})
	r.Group(func(r chi.Router) {
		r.Use(endpoint)
		r.Handle("/metrics", quiet(g.metrics.Handler()))
		r.Handle("/livez", problem.HandlerFunc(g.endpoints.health.Live))
		r.Handle("/readyz", problem.HandlerFunc(g.endpoints.health.Ready))
		r.Handle("/*", problem.HandlerFunc(notFound))
		r.Group(func(r chi.Router) {
			r.Use(
				middleware.Canonical(),
				middleware.NoEncodedSlash(),
				middleware.Authenticate(g.shared.tokens, func(*http.Request) problem.Challenge { return g.endpoints.challenge }, adminOnly),
				middleware.LimitBody(documentSize, formTime),
			)
			g.endpoints.admin.Routes(r)
		})
	})
	return r
}

// adminOnly is what the admin API requires of a token.
func adminOnly(*http.Request) (tokens.Requirement, bool) {
	return tokens.Requirement{Scope: scope.Of(clients.AdminScope)}, true
}

func notFound(http.ResponseWriter, *http.Request) error {
	return problem.New(http.StatusNotFound, "", nil)
}

// quiet keeps requests that come every few seconds out of the log, except at the level debug.
func quiet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchange.From(r.Context()).Quiet = true
		next.ServeHTTP(w, r)
	})
}

// endpoint notes the pattern of the endpoint that answers, for the metrics.
func endpoint(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchange.From(r.Context()).Route = chi.RouteContext(r.Context()).RoutePattern()
		next.ServeHTTP(w, r)
	})
}
