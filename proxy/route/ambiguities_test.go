package route

import (
	"testing"

	"snowgate/internal/request/canonical"
)

func TestAmbiguous(t *testing.T) {
	table, err := NewTable([]Route{
		{Name: "all", Path: "/", Public: true, AllowEncodedSlash: true},
		{Name: "svc", Path: "/svc", AllowEncodedSlash: true},
		{Name: "admin", Path: "/svc/admin"},
		{Name: "semicolon", Path: "/a;b"},
	}, []string{"/oauth2", "/livez"})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		raw  string
		want bool
	}{
		{"/svc/x", false},
		{"/public/a;v=1/b", false},       // the same route either way
		{"/fetch/http%3A%2F%2Fx", false}, // a URL as a segment
		{"/svc/a;v=1", false},
		{"/svc/a%2Fb", false},
		{"/a;b/x", true}, // by the other reading /a/x, which is the catch-all's
		{"/svc;x/y", true},
		{"/svc%3Bx/y", true},
		{"/svc%2Fx", true},
		{"/%2Fsvc/x", true},
		{"/svc/admin;x", true},
		{"/svc/admin%2Fx", true},
		{"/svc;a%2Fadmin", true},  // both at once
		{"/oauth2;x/token", true}, // the gateway's own
		{"/livez;x", true},
	}
	for _, tt := range tests {
		path, err := canonical.ParsePath(tt.raw)
		if err != nil {
			t.Fatal(err)
		}
		route, _ := table.Find("h", path.Match)
		if got := table.Ambiguous("h", path, route); got != tt.want {
			t.Errorf("ambiguous(%q) = %v, want %v", tt.raw, got, tt.want)
		}
	}
}
