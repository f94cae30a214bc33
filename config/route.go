package config

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v4"

	"snowgate/clients"
	"snowgate/internal/request/canonical"
	"snowgate/internal/scope"
	"snowgate/limit"
)

// Defaults of a route.
const (
	DefaultTimeout = 30 * time.Second
	DefaultMaxBody = 10 * humanize.MiByte
)

// audienceWanted says what satisfies [clients.ValidAudience], for faults.
const audienceWanted = "an absolute URI without a fragment"

// Route is one way from the public listener to a service.
type Route struct {
	// Name identifies the route in logs and metrics.
	Name string
	// Host is in the form of [canonical.Host]; empty for every host.
	Host string
	// Path is a prefix that matches at segment boundaries.
	Path string
	// Upstreams are the services: scheme http, https or h2c (HTTP/2 without TLS),
	// and host, nothing else.
	// A route without any serves forward-auth only.
	Upstreams []url.URL
	// StripPrefix tells that Path is not part of what the service sees.
	StripPrefix bool
	// Methods are those that are let through; empty for all but CONNECT and
	// TRACE.
	Methods []string
	// Scopes are all needed in the token.
	Scopes scope.List
	// Audience, unless empty, must be among those of the token.
	Audience string
	// Public tells that no token is needed. Scopes and Audience are then empty.
	Public bool
	// MCP tells that the service is a server of the Model Context Protocol: the route is an OAuth
	// protected resource of its own, and without Audience its URL is the audience.
	MCP bool
	// Transport is [TransportDirect], [TransportStandard] or, for the default, empty.
	Transport string
	// WebSocket tells that upgrades to WebSocket are let through.
	WebSocket bool
	// PassToken tells that the service gets the client's Authorization.
	PassToken bool
	// Timeout bounds the wait for the header of the service's response.
	Timeout time.Duration
	// MaxBody bounds the body of a request, in bytes; 0 is unlimited.
	MaxBody int64
	// AllowEncodedSlash lets paths through that hold %2F.
	AllowEncodedSlash bool
	// Balance is [RoundRobin] or [LeastInFlight].
	Balance string
	// Health says how replicas are checked.
	Health HealthCheck
	// Rate bounds how often the route is asked, ClientRate how often by one client;
	// the zero value is no bound.
	Rate, ClientRate limit.Rate
	// AddPrefix goes before the path that is forwarded.
	AddPrefix string
	// EditRequest and EditResponse change headers on their way.
	EditRequest, EditResponse Edits
	// PreserveHost tells that the service gets the client's Host, else HostHeader,
	// else the host of the upstream.
	PreserveHost bool
	HostHeader   string
	// MaxInFlight bounds the requests under way at one time; 0 is unlimited.
	MaxInFlight int
	// CORS says which pages of other origins may use the route from a browser.
	CORS CORS
}

// routeReader reads the routes of one file and remembers what must not occur in
// it twice.
type routeReader struct {
	*decoder
	names  map[string]*yaml.Node
	places map[string]*yaml.Node // by host and path
	checks map[url.URL]checkedAt // by upstream
}

// routes reads the list of routes.
func (d *decoder) routes(n *yaml.Node) []Route {
	r := &routeReader{decoder: d, names: map[string]*yaml.Node{}, places: map[string]*yaml.Node{}, checks: map[url.URL]checkedAt{}}
	elements := d.list(n, "routes")
	list := slices.Grow([]Route(nil), len(elements))
	for _, element := range elements {
		list = append(list, r.route(element))
	}
	return list
}

func (r *routeReader) route(n *yaml.Node) Route {
	o := r.object(n, "a route", "name", "host", "path", "upstreams", "strip_prefix", "methods", "scopes", "audience",
		"public", "mcp", "websocket", "pass_token", "timeout", "max_body", "allow_encoded_slash", "transport",
		"balance", "health", "max_in_flight", "add_prefix", "set_request_headers", "remove_request_headers",
		"set_response_headers", "remove_response_headers", "preserve_host", "host_header", "rate", "client_rate", "cors")
	route := Route{
		Name:              r.name(r.required(o, "name"), "route name", "1 to 64 characters of A-Za-z0-9._-", validRouteName, r.names),
		Host:              r.host(o.keys["host"]),
		Path:              r.routePath(r.required(o, "path")),
		Upstreams:         r.upstreams(o.keys["upstreams"]),
		StripPrefix:       r.boolean(o.keys["strip_prefix"], "strip_prefix"),
		Methods:           r.unique(o.keys["methods"], "methods", methodWanted, validMethod),
		Scopes:            r.scopes(o.keys["scopes"]),
		Audience:          r.audience(o.keys["audience"]),
		Public:            r.boolean(o.keys["public"], "public"),
		MCP:               r.boolean(o.keys["mcp"], "mcp"),
		WebSocket:         r.boolean(o.keys["websocket"], "websocket"),
		PassToken:         r.boolean(o.keys["pass_token"], "pass_token"),
		Timeout:           r.duration(o.keys["timeout"], "timeout", DefaultTimeout),
		MaxBody:           r.size(o.keys["max_body"], "max_body", DefaultMaxBody),
		AllowEncodedSlash: r.boolean(o.keys["allow_encoded_slash"], "allow_encoded_slash"),
		Transport:         r.transport(o.keys["transport"]),
		Balance:           r.balance(o.keys["balance"]),
		Health:            r.health(o.keys["health"]),
		MaxInFlight:       r.count(o.keys["max_in_flight"], "max_in_flight", maxRequestsInFlight),
		Rate:              r.rate(o.keys["rate"]),
		ClientRate:        r.rate(o.keys["client_rate"]),
		AddPrefix:         r.addPrefix(o.keys["add_prefix"]),
		EditRequest:       r.edits(o.keys["set_request_headers"], o.keys["remove_request_headers"]),
		EditResponse:      r.edits(o.keys["set_response_headers"], o.keys["remove_response_headers"]),
		CORS:              r.cors(o.keys["cors"]),
	}
	route.PreserveHost, route.HostHeader = r.hostHeader(o.keys["preserve_host"], o.keys["host_header"])
	r.checkCORS(o, &route)
	r.together(o, route)
	return route
}

// together checks the values of a route against one another and against those
// of the routes before it.
func (r *routeReader) together(o object, route Route) {
	if route.Public && route.Scopes != "" {
		r.fault(o.keys["scopes"], "a public route asks for no token and so for no scopes")
	}
	if route.Public && route.Audience != "" {
		r.fault(o.keys["audience"], "a public route asks for no token and so for no audience")
	}
	if route.Public && route.MCP {
		r.fault(o.keys["mcp"], "a public route asks for no token: there is nothing that a client of the Model Context Protocol could find out; leave mcp or public out")
	}
	if route.Public && !route.ClientRate.IsZero() {
		r.fault(o.keys["client_rate"], "a public route knows no clients and can have no rate for them")
	}
	if o.node != nil && o.keys["upstreams"] == nil && !r.labels { // a container is an upstream itself
		r.forwardsNothing(o)
	}
	if route.WebSocket && slices.ContainsFunc(route.Upstreams, func(u url.URL) bool { return u.Scheme == "h2c" }) {
		r.fault(o.keys["websocket"], "a WebSocket needs HTTP/1.1, and an upstream of the route is h2c")
	}
	if route.Transport == TransportDirect {
		i := slices.IndexFunc(route.Upstreams, func(u url.URL) bool { return u.Scheme != "http" })
		if i >= 0 {
			r.fault(o.keys["transport"], "%s is spoken by the %s transport only; leave the key out, or name it", quote(route.Upstreams[i].String()), TransportStandard)
		}
	}
	r.checkedAlike(o.keys["health"], route.Upstreams, route.Health)
	if route.Path == "" {
		return
	}
	key := route.Host + route.Path // a host holds no slash, a path starts with one
	if earlier := r.places[key]; earlier != nil {
		r.fault(o.keys["path"], "another route has the same host and path, at %s", place(earlier))
		return
	}
	r.places[key] = o.keys["path"]
}

// forForwarding are the keys of a route that concern forwarding, and not a verdict of forward-auth.
// checkCORS refuses cors there.
var forForwarding = [...]string{
	"balance", "health", "max_in_flight", "rate", "client_rate", "timeout", "max_body", "strip_prefix", "add_prefix",
	"set_request_headers", "remove_request_headers", "set_response_headers", "remove_response_headers",
	"preserve_host", "host_header", "websocket", "pass_token", "transport",
}

// forwardsNothing refuses keys that have no effect on a route without upstreams, which is for
// forward-auth.
func (r *routeReader) forwardsNothing(o object) {
	r.note(o.node, "a route without upstreams serves forward-auth only: requests to it are 404")
	for _, key := range forForwarding {
		if n := o.keys[key]; n != nil {
			r.note(n, "%s is for requests that are forwarded: without upstreams it has no effect", key)
		}
	}
}

var routeName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func validRouteName(text string) bool { return routeName.MatchString(text) && len(text) <= 64 }

// method is stricter than RFC 9110 §9.1, which allows any token: methods are
// case-sensitive, and one in lower case is most likely a mistake.
var method = regexp.MustCompile(`^[A-Z][A-Z0-9_-]*$`)

// methodWanted says what satisfies validMethod, for faults.
const methodWanted = "a method in capitals, other than CONNECT and TRACE"

func validMethod(text string) bool {
	return method.MatchString(text) && len(text) <= 32 && text != "CONNECT" && text != "TRACE"
}

// host reads a host in the form in which requests are looked up.
func (r *routeReader) host(n *yaml.Node) string {
	text, ok := r.text(n, "host")
	if !ok || text == "" {
		return ""
	}
	host, err := canonical.Host(text)
	_, _, portErr := net.SplitHostPort(text)
	if err != nil || portErr == nil {
		r.fault(n, "host %s is not a host name or address without a port", quote(text))
		return ""
	}
	return host
}

// reserved are the paths of the gateway itself; everything below them is its
// own, too.
var reserved = []string{
	"/oauth2",
	"/.well-known/oauth-authorization-server",
	"/.well-known/oauth-protected-resource",
	"/livez",
	"/readyz",
}

func (r *routeReader) routePath(n *yaml.Node) string {
	text, ok := r.text(n, "path")
	if !ok {
		return ""
	}
	if err := canonical.ValidPrefix(text); err != nil {
		r.fault(n, "path %s is not a route's: %v", quote(text), err)
		return ""
	}
	for _, own := range reserved {
		if text == own || strings.HasPrefix(text, own+"/") {
			r.fault(n, "path %s belongs to the gateway itself, which answers %s", quote(text), own)
			return ""
		}
	}
	return text
}

func (r *routeReader) audience(n *yaml.Node) string {
	text, ok := r.text(n, "audience")
	if !ok {
		return ""
	}
	if !clients.ValidAudience(text) {
		r.fault(n, "audience %s is not %s", quote(text), audienceWanted)
		return ""
	}
	return text
}

func (r *routeReader) upstreams(n *yaml.Node) []url.URL {
	if n == nil {
		return nil
	}
	var list []url.URL
	seen := map[url.URL]*yaml.Node{}
	elements := r.list(n, "upstreams")
	if len(elements) == 0 && (n.Kind == yaml.SequenceNode || isNull(n)) {
		r.fault(n, "a route needs at least one upstream; without the key it serves forward-auth only")
	}
	for _, element := range elements {
		text, ok := r.text(element, "an upstream")
		if !ok {
			continue
		}
		u, reason := parseUpstream(text)
		if reason != "" {
			r.fault(element, "upstream %s %s", quote(text), reason)
			continue
		}
		if earlier := seen[u]; earlier != nil {
			r.fault(element, "upstream %s is listed twice, first at %s", quote(text), place(earlier))
			continue
		}
		seen[u] = element
		list = append(list, u)
	}
	return list
}

// parseUpstream reads scheme and host; reason says what is wrong.
func parseUpstream(text string) (u url.URL, reason string) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil || !slices.Contains([]string{"http", "https", "h2c"}, parsed.Scheme) || !validPort(parsed) || parsed.Opaque != "":
		return u, "is not a URL such as http://orders:8080"
	case parsed.User != nil:
		return u, "holds a user name or password"
	case strings.ContainsAny(text, "?#"):
		return u, "has a query or a fragment"
	case parsed.Path != "" && parsed.Path != "/":
		return u, "has a path; the path of the request is what is forwarded"
	}
	return url.URL{Scheme: parsed.Scheme, Host: strings.ToLower(parsed.Host)}, ""
}
