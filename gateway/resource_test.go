package gateway

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"snowgate/config"
	"snowgate/proxy/route"
)

// TestResourceOf: the identifier is the URL under which clients know the route; its metadata are where
// RFC 9728 §3.1 says.
func TestResourceOf(t *testing.T) {
	const gate = "https://gate.example"
	for _, test := range []struct {
		issuer string
		route  config.Route
		want   route.Resource
	}{
		{gate, config.Route{Path: "/mcp"}, route.Resource{}},
		{gate, config.Route{Path: "/mcp", MCP: true}, route.Resource{ID: gate + "/mcp", Metadata: gate + "/.well-known/oauth-protected-resource/mcp"}},
		{gate, config.Route{Path: "/", MCP: true}, route.Resource{ID: gate, Metadata: gate + "/.well-known/oauth-protected-resource"}},
		{gate, config.Route{Path: "/ä b", MCP: true}, route.Resource{ID: gate + "/%C3%A4%20b", Metadata: gate + "/.well-known/oauth-protected-resource/%C3%A4%20b"}},
		{gate + "/sg", config.Route{Path: "/mcp", MCP: true}, route.Resource{ID: gate + "/sg/mcp", Metadata: gate + "/.well-known/oauth-protected-resource/sg/mcp"}},
		{gate + ":8443/sg", config.Route{Host: "tools.example", Path: "/mcp", MCP: true},
			route.Resource{ID: "https://tools.example:8443/mcp", Metadata: "https://tools.example:8443/.well-known/oauth-protected-resource/mcp"}},
		{gate, config.Route{Path: "/mcp", MCP: true, Audience: "urn:tools"}, route.Resource{ID: "urn:tools", Metadata: gate + "/.well-known/oauth-protected-resource/mcp"}},
	} {
		if diff := cmp.Diff(test.want, resourceOf(test.issuer, test.route)); diff != "" {
			t.Errorf("%s, %s%s (-want +got):\n%s", test.issuer, test.route.Host, test.route.Path, diff)
		}
	}
}
