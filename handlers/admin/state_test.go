package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"snowgate/tokens"
)

func TestReadToken(t *testing.T) {
	b := newBench(t)
	got := b.do("GET", "/tokens/"+aToken, "")
	if o := got.object(); got.Code != http.StatusOK || o["token_id"] != aToken || o["client_id"] != "configured" || o["active"] != true || o["refused"] != nil {
		t.Errorf("a good token: %d %s", got.Code, got.Body)
	}
	b.tokens.why = tokens.ErrRevoked
	if o := b.do("GET", "/tokens/"+aToken, "").object(); o["active"] != false || o["refused"] != "revoked" {
		t.Errorf("a revoked token: %v", o)
	}
	for path, status := range map[string]int{
		"/tokens/0000000000Z": 404, // no record
		"/tokens/x":           400, // no id
		"/tokens/sgt_00000000001_" + strings.Repeat("0", 54): 400, // a whole token
	} {
		if got := b.do("GET", path, ""); got.Code != status || strings.Contains(got.Body.String(), "sgt_0") {
			t.Errorf("GET %s = %d %s, want %d", path, got.Code, got.Body, status)
		}
	}
}

func TestRevokeToken(t *testing.T) {
	b := newBench(t)
	for range 2 { // the second time, the token is gone already, which is no error
		if got := b.do("DELETE", "/tokens/"+aToken, ""); got.Code != http.StatusNoContent {
			t.Errorf("DELETE = %d %s", got.Code, got.Body)
		}
	}
	if len(b.tokens.tokens) != 0 {
		t.Error("the token is still there")
	}
}

func TestRevocations(t *testing.T) {
	const hour = `"from":"2026-06-01T10:00:00Z","until":"2026-06-01T11:00:00Z"`
	tests := []struct {
		why, body string
		status    int
		want      []string // of the response, or the pointers of the faults
	}{
		{"one token", `{"token":"` + aToken + `","reason":"leaked"}`, 200, []string{`"kind":"token"`, `"reason":"leaked"`, `"by":"admin"`}},
		{"a client", `{"client":"orders"}`, 201, []string{`"kind":"client"`, `"client":"orders"`, `"generation":7`, `"ends_at":`}},
		{"a client that nobody knows here", `{"client":"nobody"}`, 201, []string{`"client":"nobody"`}},
		{"a worker", `{"worker":0,` + hour + `}`, 201, []string{`"kind":"worker"`, `"worker":0`, `"from":"2026-06-01T10:00:00Z"`}},
		{"everything before", `{"before":"2026-06-01T14:00:00+02:00"}`, 201, []string{`"kind":"before"`, `"before":"2026-06-01T12:00:00Z"`}},

		{"nothing", `{}`, 422, []string{""}},
		{"two kinds", `{"client":"a","token":"x","reason":"\u0000"}`, 422, []string{"", "/reason"}},
		{"no token id", `{"token":"sgt_x"}`, 422, []string{"/token"}},
		{"no client id", `{"client":"a b"}`, 422, []string{"/client"}},
		{"a worker without an interval", `{"worker":1}`, 422, []string{"/from", "/until"}},
		{"an interval without a worker", `{"client":"a",` + hour + `}`, 422, []string{"/from", "/until"}},
		{"a worker that the layout has not", `{"worker":1024,` + hour + `}`, 422, []string{"/worker"}},
		{"an interval that is empty", `{"worker":1,"from":"2026-06-01T10:00:00Z","until":"2026-06-01T10:00:00Z"}`, 422, []string{"/until"}},
		{"no instants", `{"worker":1,"from":"yesterday","until":7}`, 422, []string{"/from", "/until"}},
		{"no instant", `{"before":"2026-06-01"}`, 422, []string{"/before"}},
		{"the future", `{"before":"2026-06-01T12:00:01Z"}`, 422, []string{"/before"}},
		{"the future of a worker", `{"worker":1,"from":"2026-06-01T10:00:00Z","until":"2027-06-01T10:00:00Z"}`, 422, []string{"/until"}},
		{"a long reason", `{"client":"a","reason":"` + strings.Repeat("x", 257) + `"}`, 422, []string{"/reason"}},
	}
	for _, tt := range tests {
		b := newBench(t)
		got := b.do("POST", "/revocations", tt.body)
		if got.Code != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.why, got.Code, got.Body, tt.status)
		}
		if tt.status == 422 {
			if faults := got.faults(); !slices.Equal(faults, tt.want) {
				t.Errorf("%s: faults at %q, want %q", tt.why, faults, tt.want)
			}
			if len(b.tokens.rules.Rules) != 0 {
				t.Errorf("%s: a rule was written", tt.why)
			}
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(got.Body.String(), want) {
				t.Errorf("%s: %s, want %s in it", tt.why, got.Body, want)
			}
		}
	}
}

func TestRevocationsAreListedAndKept(t *testing.T) {
	b := newBench(t)
	b.do("POST", "/revocations", `{"client":"orders","reason":"gone"}`)
	got := b.do("GET", "/revocations", "")
	if list := got.object()["revocations"].([]any); len(list) != 1 || list[0].(map[string]any)["by"] != "admin" || list[0].(map[string]any)["reason"] != "gone" {
		t.Errorf("list: %s", got.Body)
	}
	refused := b.do("DELETE", "/revocations/client-orders", "")
	if refused.Code != http.StatusConflict || !strings.Contains(refused.Body.String(), "2026-06-01T13:00:00Z") || len(b.tokens.rules.Rules) != 1 {
		t.Errorf("delete: %d %s", refused.Code, refused.Body)
	}
	if got := b.do("DELETE", "/revocations/client-nobody", ""); got.Code != http.StatusNotFound {
		t.Errorf("delete of none: %d", got.Code)
	}
}

func TestKeys(t *testing.T) {
	b := newBench(t)
	made := b.do("POST", "/keys", `{"reason":"yearly"}`)
	if made.Code != http.StatusCreated || made.object()["starts_at"] != "2026-06-01T12:01:00Z" || made.object()["state"] != "next" {
		t.Errorf("rotate: %d %s", made.Code, made.Body)
	}
	var states []string
	for _, key := range b.do("GET", "/keys", "").object()["keys"].([]any) {
		states = append(states, key.(map[string]any)["state"].(string))
	}
	if !slices.Equal(states, []string{"old", "current", "next"}) {
		t.Errorf("states: %q", states)
	}
	if got := b.do("POST", "/keys", `{"start":"now"}`); got.Code != 422 {
		t.Errorf("an unknown member: %d", got.Code)
	}
	b.tokens.err = tokens.ErrKeyFixed
	if got := b.do("POST", "/keys", ""); got.Code != http.StatusConflict {
		t.Errorf("a key that is configured: %d", got.Code)
	}
}

func TestKeyStates(t *testing.T) {
	for _, tt := range []struct {
		starts []time.Time
		want   string
	}{
		{nil, ""},
		{[]time.Time{{}}, "current"},
		{[]time.Time{{}, noon}, "old current"}, // the first instant belongs to the new key
		{[]time.Time{{}, noon.Add(1)}, "current next"},
	} {
		var got []string
		for _, d := range keyDocuments(tt.starts, noon) {
			got = append(got, d.State)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("keyDocuments(%v) = %q, want %q", tt.starts, got, tt.want)
		}
	}
}

func TestTokensAreAway(t *testing.T) {
	b := newBench(t)
	b.tokens.err = fmt.Errorf("%w: %w", tokens.ErrUnavailable, errStore)
	for _, tt := range [][3]string{
		{"GET", "/tokens/" + aToken, ""},
		{"DELETE", "/tokens/" + aToken, ""},
		{"POST", "/revocations", `{"token":"` + aToken + `"}`},
		{"POST", "/revocations", `{"client":"a"}`},
		{"POST", "/keys", ""},
	} {
		if got := b.do(tt[0], tt[1], tt[2]); got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" || !strings.Contains(got.Body.String(), "Redis") {
			t.Errorf("%s %s %s = %d %s", tt[0], tt[1], tt[2], got.Code, got.Body)
		}
	}
}

func TestState(t *testing.T) {
	b := newBench(t)
	for path, want := range map[string]string{
		"/routes":          `"routes":[{"name":"orders","source":"file","changed":"2026-06-01T12:00:00Z","path":"/orders","methods":[],"scopes":[],"public":false,"websocket":false,"upstreams":[],"replicas":[]}]`,
		"/health":          `"version":"v1"`,
		"/ids/00000000001": `"decimal":"1"`,
	} {
		if got := b.do("GET", path, ""); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), want) {
			t.Errorf("GET %s = %d %s, want %s in it", path, got.Code, got.Body, want)
		}
	}
	if got := b.do("GET", "/ids/x", ""); got.Code != http.StatusBadRequest {
		t.Errorf("GET /ids/x = %d", got.Code)
	}
	b.api.RouteTable = func() []Route { return nil }
	if got := b.do("GET", "/routes", ""); got.Body.String() != "{\"routes\":[]}\n" {
		t.Errorf("no routes: %s", got.Body)
	}
}

func TestDiscoveredRoutes(t *testing.T) {
	b := newBench(t)
	b.api.Discovery = func() Discovery { return Discovery{Source: "docker"} }
	b.api.RouteTable = func() []Route { return nil }
	const empty = `{"routes":[],"discovery":{"source":"docker","up":false,"containers":[],"refused":[]}}`
	if got := b.do("GET", "/routes", ""); got.Body.String() != empty+"\n" {
		t.Errorf("nothing discovered: %s, want %s", got.Body, empty)
	}
	const at = "2026-06-01T12:00:00Z"
	b.api.Discovery = func() Discovery {
		return Discovery{
			Source: "docker", Up: true, Changed: at, Listed: at, Error: "x",
			Containers: []Container{{ID: "1", Name: "shop-a-1", Owner: "shop/a", Route: "a", Address: "10.0.0.2:80", State: "serving", Reason: "x"}},
			Refused:    []RefusedRoute{{Name: "b", Owner: "shop/b", Reason: "taken"}},
		}
	}
	b.api.RouteTable = func() []Route {
		return []Route{{Name: "a", Source: "docker", Owner: "shop/a", Changed: at, Path: "/a", Replicas: []Replica{{Upstream: "docker:shop-a-1", Address: "10.0.0.2:80", Healthy: true}}}}
	}
	// The responses are checked against the document.
	got := b.do("GET", "/routes", "")
	for _, want := range []string{`"owner":"shop/a"`, `"state":"serving"`, `"reason":"taken"`, `"upstream":"docker:shop-a-1"`, `"listed":"` + at} {
		if got.Code != http.StatusOK || !strings.Contains(got.Body.String(), want) {
			t.Errorf("GET /routes = %d %s, want %s in it", got.Code, got.Body, want)
		}
	}
}

// Whatever the bytes are, reading them ends in an object or in a response below
// 500, and what is accepted is JSON that encoding/json reads, too.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"client":"a","reason":"b"}`, `{"worker":1,"from":"2026-06-01T10:00:00Z","until":"2026-06-01T11:00:00Z"}`,
		`{"expires_in":1e2}`, `{"expires_in":99999999999999999999}`, `{"a":1,"a":2}`, `{"a~/":null}`, `[`, "\xff", `{"others_expire_in":-0}`,
		`{"client_id":"x","scope":"a b","token_ttl":60,"disabled":true}`, `{"before":"0000-01-01T00:00:00Z"}`, `{"reason":"\u2028"}`,
	} {
		f.Add(seed)
	}
	paths := []string{"/clients", "/clients/orders/secrets", "/revocations", "/keys"}
	f.Fuzz(func(t *testing.T, body string) {
		b := newBench(t)
		for _, path := range paths {
			if status := b.serveOnly("POST", path, body); status >= 500 {
				t.Errorf("POST %s %q = %d", path, body, status)
			}
		}
		if strings.Contains(b.log.String(), "sgs_") {
			t.Errorf("the log holds a secret: %s", b.log)
		}
	})
}

// FuzzConditions: only the exact tag of a revision is accepted. No other text lets a change
// through.
func FuzzConditions(f *testing.F) {
	for _, seed := range []string{`"1"`, `"01"`, `W/"1"`, `*`, `"1","2"`, `""`, `"18446744073709551616"`, `"`, ` , `, `*, "1"`, "*,\t*", "*,\r*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		revision, err := required(http.Header{"If-Match": {text}})
		kept := strings.Trim(text, ", \t")
		if err == nil && kept != tag(revision) && (revision != 0 || strings.Trim(kept, "*, \t") != "") {
			t.Errorf("If-Match: %q = %d", text, revision)
		}
		_ = notModified(http.Header{"If-None-Match": {text}}, `"1"`)
	})
}
