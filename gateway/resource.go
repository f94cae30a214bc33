package gateway

import (
	"net"
	"net/url"
	"strings"

	"snowgate/config"
	"snowgate/handlers"
	"snowgate/proxy/route"
)

// resourceOf returns the metadata of a route that is a protected resource of its own, as with mcp.
// Its identifier is the URL of the route below the issuer, or the audience that the route names.
func resourceOf(issuer string, r config.Route) route.Resource {
	if !r.MCP {
		return route.Resource{}
	}
	own := handlers.Metadata{Issuer: issuer}
	origin, suffix := strings.TrimSuffix(issuer, own.Suffix()), own.Suffix()
	if r.Host != "" {
		origin, suffix = originOf(issuer, r.Host), ""
	}
	path := suffix + strings.TrimSuffix((&url.URL{Path: r.Path}).EscapedPath(), "/")
	resource := route.Resource{ID: origin + path, Metadata: origin + handlers.ResourceMetadataPath + path}
	if r.Audience != "" {
		resource.ID = r.Audience
	}
	return resource
}

// originOf returns the origin of a route with a host of its own: scheme and port are those of the issuer.
func originOf(issuer, host string) string {
	u, err := url.Parse(issuer) // which the configuration has checked
	if err != nil {
		return issuer
	}
	if port := u.Port(); port != "" {
		host = net.JoinHostPort(host, port)
	}
	return u.Scheme + "://" + host
}

// resources returns the routes that are protected resources of their own.
func (r *routing) resources() (list []handlers.RouteResource) {
	for one := range r.router.Table().All() {
		if one.Resource.Metadata != "" {
			list = append(list, shownResource(one))
		}
	}
	return list
}

// resource returns the route at exactly that host and path, if it is a protected resource of its own.
func (r *routing) resource(host, path string) (handlers.RouteResource, bool) {
	if path == "" {
		path = "/"
	}
	table := r.router.Table()
	i, found := table.Find(host, path)
	if !found || table.Routes[i].Path != path || table.Routes[i].Resource.Metadata == "" {
		return handlers.RouteResource{}, false
	}
	return shownResource(table.Routes[i]), true
}

func shownResource(r *route.Route) handlers.RouteResource {
	return handlers.RouteResource{ID: r.Resource.ID, Metadata: r.Resource.Metadata, Name: r.Name, Scopes: r.Requirement.Scope}
}
