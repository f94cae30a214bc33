package handlers

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/internal/scope"
)

// The paths of the OAuth endpoints, relative to the issuer.
const (
	TokenPath            = "/oauth2/token"
	IntrospectPath       = "/oauth2/introspect"
	RevokePath           = "/oauth2/revoke"
	AuthorizePath        = "/oauth2/authorize"
	ServerMetadataPath   = "/.well-known/oauth-authorization-server"
	ResourceMetadataPath = "/.well-known/oauth-protected-resource"
)

// Metadata serves the documents by which client programs discover the gateway. It is safe for
// concurrent use.
type Metadata struct {
	// Issuer is the issuer identifier, an absolute URL without query, fragment or trailing slash.
	Issuer string
	// Scopes returns the scopes that the routes ask for at the moment.
	Scopes func() scope.List
	// RouteResources returns the routes that are protected resources of their own. nil: there are none.
	RouteResources func() []RouteResource
	// RouteResource returns the resource whose route has a host, as in a Host field, and a canonical path.
	RouteResource func(host, path string) (RouteResource, bool)
}

// RouteResource is a route that is a protected resource of its own.
type RouteResource struct {
	ID       string // the resource identifier, a URL
	Metadata string // the URL of its metadata
	Name     string // for people
	Scopes   scope.List
}

// Suffix returns the path of the issuer, which follows the well-known paths (RFC 8414 §3.1, RFC
// 9728 §3.1).
func (m *Metadata) Suffix() string {
	issuer, err := url.Parse(m.Issuer)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(issuer.EscapedPath(), "/")
}

// ResourceURL returns the URL of Resource, which WWW-Authenticate names (RFC 9728 §5.1).
func (m *Metadata) ResourceURL() string {
	suffix := m.Suffix()
	return strings.TrimSuffix(m.Issuer, suffix) + ResourceMetadataPath + suffix
}

// serverMetadata is the metadata of RFC 8414 §2. response_types_supported is REQUIRED there, but
// has no elements for a server without an authorization endpoint. §3.2 omits empty arrays, so it is
// omitted.
type serverMetadata struct {
	Issuer                   string   `json:"issuer"`
	TokenEndpoint            string   `json:"token_endpoint"`
	TokenAuthMethods         []string `json:"token_endpoint_auth_methods_supported"`
	RevocationEndpoint       string   `json:"revocation_endpoint"`
	RevocationAuthMethods    []string `json:"revocation_endpoint_auth_methods_supported"`
	IntrospectionEndpoint    string   `json:"introspection_endpoint"`
	IntrospectionAuthMethods []string `json:"introspection_endpoint_auth_methods_supported"`
	GrantTypes               []string `json:"grant_types_supported"`
	Scopes                   []string `json:"scopes_supported,omitempty"`
	ProtectedResources       []string `json:"protected_resources"`
	// Members for other grants, which clients of the Model Context Protocol nevertheless require.
	AuthorizationEndpoint string   `json:"authorization_endpoint,omitempty"`
	ResponseTypes         []string `json:"response_types_supported,omitempty"`
	CodeChallengeMethods  []string `json:"code_challenge_methods_supported,omitempty"`
}

// Server is the authorization server metadata endpoint (RFC 8414 §3).
func (m *Metadata) Server(w http.ResponseWriter, r *http.Request) error {
	if err := checkRead(r); err != nil {
		return err
	}
	keepShortly(w)
	methods := []string{"client_secret_basic", "client_secret_post"}
	said := serverMetadata{
		Issuer:                   m.Issuer,
		TokenEndpoint:            m.Issuer + TokenPath,
		TokenAuthMethods:         methods,
		RevocationEndpoint:       m.Issuer + RevokePath,
		RevocationAuthMethods:    methods,
		IntrospectionEndpoint:    m.Issuer + IntrospectPath,
		IntrospectionAuthMethods: methods,
		GrantTypes:               []string{"client_credentials"},
		Scopes:                   m.scopes(),
		ProtectedResources:       m.resources(),
	}
	if len(said.ProtectedResources) > 1 {
		// The SDKs for TypeScript and Go refuse metadata without these, whatever the grant is.
		said.AuthorizationEndpoint = m.Issuer + AuthorizePath
		said.ResponseTypes = []string{"none"} // of OAuth 2.0 Multiple Response Type Encoding Practices: neither code nor token
		said.CodeChallengeMethods = []string{"S256"}
	}
	return WriteJSON(w, http.StatusOK, said)
}

// Authorize refuses everybody: the gateway has tokens for programs only, and no page on which people sign
// in. There is no such place unless the metadata must name it, see [Metadata.Server].
func (m *Metadata) Authorize(http.ResponseWriter, *http.Request) error {
	if len(m.resources()) == 1 {
		return problem.New(http.StatusNotFound, "", nil)
	}
	return problem.New(http.StatusBadRequest,
		"Nobody can sign in here: this gateway gives tokens to programs, by the client credentials grant at "+TokenPath+".", nil)
}

// resourceMetadata is the metadata of RFC 9728 §2.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	Name                 string   `json:"resource_name,omitempty"`
	AuthorizationServers []string `json:"authorization_servers"`
	Scopes               []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
}

// Resource is the protected resource metadata endpoint (RFC 9728 §3).
func (m *Metadata) Resource(w http.ResponseWriter, r *http.Request) error {
	if err := checkRead(r); err != nil {
		return err
	}
	keepShortly(w)
	return WriteJSON(w, http.StatusOK, resourceMetadata{
		Resource:             m.Issuer,
		AuthorizationServers: []string{m.Issuer},
		Scopes:               m.scopes(),
		BearerMethods:        []string{"header"},
	})
}

// ResourceOfRoute is the metadata endpoint of the routes that are protected resources of their own. Its
// path ends with the path of the resource (RFC 9728 §3.1).
func (m *Metadata) ResourceOfRoute(w http.ResponseWriter, r *http.Request) error {
	found, ok := m.routeResource(r.Host, exchange.From(r.Context()).Path.Match)
	if !ok {
		return problem.New(http.StatusNotFound, "", nil)
	}
	if err := checkRead(r); err != nil {
		return err
	}
	keepShortly(w)
	return WriteJSON(w, http.StatusOK, resourceMetadata{
		Resource:             found.ID,
		Name:                 found.Name,
		AuthorizationServers: []string{m.Issuer},
		Scopes:               found.Scopes.Names(),
		BearerMethods:        []string{"header"},
	})
}

// routeResource returns the resource whose metadata is at a path. The path of the route follows the
// well-known part. The path of the issuer stands between them, unless the route has a host of its
// own.
func (m *Metadata) routeResource(host, path string) (RouteResource, bool) {
	whole := strings.TrimPrefix(path, ResourceMetadataPath)
	for _, at := range []string{strings.TrimPrefix(whole, m.Suffix()), whole} {
		found, ok := m.RouteResource(host, at)
		if u, err := url.Parse(found.Metadata); ok && err == nil && u.Path == path {
			return found, true
		}
	}
	return RouteResource{}, false
}

// resources returns the identifiers of all protected resources.
func (m *Metadata) resources() []string {
	list := []string{m.Issuer}
	if m.RouteResources == nil {
		return list
	}
	for _, r := range m.RouteResources() {
		if !slices.Contains(list, r.ID) {
			list = append(list, r.ID)
		}
	}
	return list
}

// keepShortly lets clients and caches keep a response for a minute (RFC 9728
// §7.10): it is the same for everybody, and changes with the routes only.
func keepShortly(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "public, max-age=60")
}

func (m *Metadata) scopes() []string {
	return slices.Sorted(m.Scopes().All)
}

// checkRead allows GET and HEAD.
func checkRead(r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return problem.MethodNotAllowed("GET, HEAD")
	}
	return nil
}
