package config

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/http/httpguts"

	"snowgate/internal/request/canonical"
)

// DefaultCORSMaxAge is the max_age of a cors without one.
const DefaultCORSMaxAge = 10 * time.Minute

// maxCORSMaxAge is a day, the most that any browser keeps.
const maxCORSMaxAge = 24 * time.Hour

var (
	// defaultCORSMethods is for a route without methods.
	defaultCORSMethods = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	}
	// defaultCORSRequestHeaders is what a program needs that sends JSON with a token.
	defaultCORSRequestHeaders = []string{"Authorization", "Content-Type"}
)

// CORS says which pages of other origins may use a route from a browser (Fetch
// Standard, "CORS protocol"). The zero value is none, and leaves the matter to
// the service.
type CORS struct {
	// Origins are patterns of [canonical.ValidOrigin].
	Origins []string
	// Methods are those of the requests that may be made.
	Methods []string
	// RequestHeaders are the header fields that may be sent beside those that
	// browsers always send; "*" is any.
	RequestHeaders []string
	// ExposedHeaders are the fields of responses that a page may read, beside those
	// of the gateway; "*" is all.
	ExposedHeaders []string
	// Credentials tells that browsers may add cookies and the like.
	Credentials bool
	// MaxAge is how long a browser may keep the response to a preflight.
	MaxAge time.Duration
}

// IsZero tells that the route has no cors.
func (c CORS) IsZero() bool { return len(c.Origins) == 0 }

// cors reads the key cors of a route.
func (r *routeReader) cors(n *yaml.Node) CORS {
	if n == nil {
		return CORS{}
	}
	o := r.object(n, "cors", "origins", "methods", "request_headers", "exposed_headers", "credentials", "max_age")
	return CORS{
		Origins:        r.origins(r.required(o, "origins")),
		Methods:        r.unique(o.keys["methods"], "methods", methodWanted, validMethod),
		RequestHeaders: r.headerNames(o.keys["request_headers"], "request_headers", defaultCORSRequestHeaders),
		ExposedHeaders: r.headerNames(o.keys["exposed_headers"], "exposed_headers", nil),
		Credentials:    r.boolean(o.keys["credentials"], "credentials"),
		MaxAge:         r.corsMaxAge(o.keys["max_age"]),
	}
}

// origins reads the patterns of the origins that are allowed.
func (r *routeReader) origins(n *yaml.Node) []string {
	elements := r.list(n, "origins")
	if n != nil && len(elements) == 0 && (n.Kind == yaml.SequenceNode || isNull(n)) {
		r.fault(n, "cors needs at least one origin; leave it out to allow none")
	}
	if len(elements) > maxElements {
		r.fault(elements[maxElements], "origins may have %d elements at most", maxElements)
		return nil
	}
	var origins []string
	for _, element := range elements {
		text, ok := r.text(element, "an origin")
		if !ok {
			continue
		}
		if err := canonical.ValidOrigin(text); err != nil {
			r.fault(element, "origin %s %s", quote(text), err)
			continue
		}
		if slices.Contains(origins, text) {
			r.fault(element, "%s is listed twice", quote(text))
			continue
		}
		origins = append(origins, text)
	}
	if len(origins) > 1 && slices.Contains(origins, canonical.AnyOrigin) {
		r.fault(n, `origins has "*", which is every origin, and others beside it`)
	}
	return origins
}

// headerNames reads names of header fields, or "*" alone; nothing is otherwise.
func (r *routeReader) headerNames(n *yaml.Node, what string, otherwise []string) []string {
	if n == nil {
		return slices.Clone(otherwise)
	}
	names := r.unique(n, what, "the name of a header field", httpguts.ValidHeaderFieldName)
	for i, name := range names {
		names[i] = http.CanonicalHeaderKey(name)
	}
	if len(names) > 1 && slices.Contains(names, "*") {
		r.fault(n, `%s has "*", which is every header field, and others beside it`, what)
	}
	return names
}

func (r *routeReader) corsMaxAge(n *yaml.Node) time.Duration {
	age := r.duration(n, "max_age", DefaultCORSMaxAge)
	if age%time.Second != 0 || age > maxCORSMaxAge {
		r.fault(n, "max_age %s is not a number of whole seconds up to %s", age, maxCORSMaxAge)
	}
	return age
}

// checkCORS checks the cors of a route against the rest of it. It has the
// methods of the route unless it says otherwise.
func (r *routeReader) checkCORS(o object, route *Route) {
	node, cors := o.keys["cors"], &route.CORS
	if node == nil || cors.IsZero() {
		return
	}
	if o.keys["upstreams"] == nil && !r.labels {
		r.fault(node, "cors has no use on a route without upstreams: what another proxy forwards is not answered here")
	}
	if cors.Credentials && slices.Contains(cors.Origins, canonical.AnyOrigin) {
		r.fault(node, `cors allows credentials to every origin "*": any page could act for whoever visits it; name the origins`)
	}
	if cors.Credentials && slices.Contains(cors.ExposedHeaders, "*") {
		r.fault(node, `with credentials, browsers take "*" in exposed_headers for the name of a field; name those that are meant`)
	}
	for _, name := range slices.Sorted(maps.Keys(route.EditResponse.Set)) {
		if strings.HasPrefix(name, "Access-Control-") {
			r.fault(node, "cors says %s, and so does set_response_headers", name)
		}
	}
	if len(cors.Methods) == 0 {
		cors.Methods = route.corsMethods()
	}
	for _, method := range cors.Methods {
		if len(route.Methods) > 0 && !slices.Contains(route.Methods, method) {
			r.fault(node, "cors allows %s, which the methods of the route do not", method)
		}
	}
}

func (r *Route) corsMethods() []string {
	if len(r.Methods) > 0 {
		return slices.Clone(r.Methods)
	}
	return slices.Clone(defaultCORSMethods)
}

// lintCORS returns remarks on settings of the cors of a route that may be unintended.
func lintCORS(route Route) []string {
	cors := route.CORS
	if cors.IsZero() {
		return nil
	}
	var notes []string
	if !route.Public && !slices.ContainsFunc(cors.RequestHeaders, func(name string) bool { return name == "*" || name == "Authorization" }) {
		notes = append(notes, fmt.Sprintf("route %q asks for a token, but its cors does not let browsers send Authorization", route.Name))
	}
	for _, origin := range cors.Origins {
		scheme, host, _ := strings.Cut(origin, "://")
		domain, wild := strings.CutPrefix(host, "*.")
		switch {
		case wild && !strings.Contains(domain, ".") && !isLocal(domain):
			notes = append(notes, fmt.Sprintf("route %q allows the origin %s: that is every site below the top-level domain %s", route.Name, origin, domain))
		case cors.Credentials && scheme == "http" && !isLocal(domain):
			notes = append(notes, fmt.Sprintf("route %q allows credentials to %s: who is between that page and its visitor can write the page", route.Name, origin))
		}
	}
	return notes
}

// isLocal reports whether authority is the visitor's own machine.
func isLocal(authority string) bool {
	host, _ := canonical.Host(authority)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "[::1]" || strings.HasPrefix(host, "127.")
}

// corsNode is cors as it is printed.
func corsNode(c CORS) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	put(n, "origins", texts(c.Origins))
	put(n, "methods", texts(c.Methods))
	put(n, "request_headers", texts(c.RequestHeaders))
	put(n, "exposed_headers", texts(c.ExposedHeaders))
	put(n, "credentials", plain(fmt.Sprint(c.Credentials)))
	put(n, "max_age", plain(c.MaxAge.String()))
	return n
}
