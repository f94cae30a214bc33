package handlers

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"snowgate/internal/problem"
	"snowgate/internal/scope"
)

// The paths of the OAuth endpoints, relative to the issuer.
const (
	TokenPath            = "/oauth2/token"
	IntrospectPath       = "/oauth2/introspect"
	RevokePath           = "/oauth2/revoke"
	ServerMetadataPath   = "/.well-known/oauth-authorization-server"
	ResourceMetadataPath = "/.well-known/oauth-protected-resource"
)

// Metadata serves what client programs discover by themselves. It is safe for
// concurrent use.
type Metadata struct {
	// Issuer is the issuer identifier, an absolute URL without query, fragment
	// or trailing slash.
	Issuer string
	// Scopes returns the scopes that the routes ask for at the moment.
	Scopes func() scope.List
}

// Suffix is what follows the well-known paths: the path of the issuer, if it has
// one (RFC 8414 §3.1, RFC 9728 §3.1).
func (m *Metadata) Suffix() string {
	issuer, err := url.Parse(m.Issuer)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(issuer.EscapedPath(), "/")
}

// ResourceURL is where Resource is served, as callers are told in
// WWW-Authenticate (RFC 9728 §5.1).
func (m *Metadata) ResourceURL() string {
	suffix := m.Suffix()
	return strings.TrimSuffix(m.Issuer, suffix) + ResourceMetadataPath + suffix
}

// serverMetadata is RFC 8414 §2. response_types_supported is REQUIRED there, and
// has no elements for a server without an authorization endpoint; §3.2 has empty
// arrays omitted, so it is.
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
}

// Server is the authorization server metadata endpoint (RFC 8414 §3).
func (m *Metadata) Server(w http.ResponseWriter, r *http.Request) error {
	if err := checkRead(r); err != nil {
		return err
	}
	keepShortly(w)
	methods := []string{"client_secret_basic", "client_secret_post"}
	return WriteJSON(w, http.StatusOK, serverMetadata{
		Issuer:                   m.Issuer,
		TokenEndpoint:            m.Issuer + TokenPath,
		TokenAuthMethods:         methods,
		RevocationEndpoint:       m.Issuer + RevokePath,
		RevocationAuthMethods:    methods,
		IntrospectionEndpoint:    m.Issuer + IntrospectPath,
		IntrospectionAuthMethods: methods,
		GrantTypes:               []string{"client_credentials"},
		Scopes:                   m.scopes(),
		ProtectedResources:       []string{m.Issuer},
	})
}

// resourceMetadata is RFC 9728 §2.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
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

// keepShortly lets clients and caches keep a response for a minute (RFC 9728
// §7.10): it is the same for everybody, and changes with the routes only.
func keepShortly(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "public, max-age=60")
}

func (m *Metadata) scopes() []string {
	return slices.Sorted(m.Scopes().All)
}

// checkRead lets GET and HEAD pass.
func checkRead(r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return problem.MethodNotAllowed("GET, HEAD")
	}
	return nil
}
