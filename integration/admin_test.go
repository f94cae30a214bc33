package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

func TestAdminDecodesIDs(t *testing.T) {
	admin := gatewaytest.NewClient("admin", "snowgate:admin")
	worker := gatewaytest.NewClient("worker", "orders.read")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + admin.YAML + worker.YAML,
		Env:    []string{"SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12,rollback:3", "SNOWGATE_ID_ROLLBACK=count", "SNOWGATE_DATACENTER_ID=2"},
	})
	ordinary := g.Token(worker)
	id := strings.Split(ordinary, "_")[1]
	ask := func(base, path, token string) gatewaytest.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		return g.Do(request)
	}
	// The admin scope must be asked for; without it the client's token is an
	// ordinary one.
	tests := []struct {
		name, base, path, token string
		status                  int
	}{
		{"without a token", g.AdminURL, "/admin/v1/ids/" + id, "", http.StatusUnauthorized},
		{"with a wrong one", g.AdminURL, "/admin/v1/ids/" + id, ordinary[:69] + "!", http.StatusBadRequest},
		{"with an ordinary one", g.AdminURL, "/admin/v1/ids/" + id, ordinary, http.StatusForbidden},
		{"with an administrator's that did not ask", g.AdminURL, "/admin/v1/ids/" + id, g.Token(admin), http.StatusForbidden},
		{"on the public listener", g.URL, "/admin/v1/ids/" + id, g.Token(admin, "scope", "snowgate:admin"), http.StatusNotFound},
		{"no id", g.AdminURL, "/admin/v1/ids/x", g.Token(admin, "scope", "snowgate:admin"), http.StatusBadRequest},
		{"with an administrator's", g.AdminURL, "/admin/v1/ids/" + id, g.Token(admin, "scope", "snowgate:admin"), http.StatusOK},
	}
	for _, tt := range tests {
		got := ask(tt.base, tt.path, tt.token)
		if got.StatusCode != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, got.StatusCode, got.Body, tt.status)
		}
		if tt.status == http.StatusOK {
			for _, want := range []string{`"id":"` + id + `"`, `"worker":65`, `"datacenter":2`, `"worker_in_datacenter":1`, `"rollback":0`, `"issued_at":"` + time.Now().UTC().Format("2006-01-02")} {
				if !strings.Contains(got.Body, want) {
					t.Errorf("decoded: %s, want %s in it", got.Body, want)
				}
			}
		}
	}
}
