package admin

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/clients"
)

func TestClientLife(t *testing.T) {
	b := newBench(t)
	const orders = `{"client_id":"orders","client_name":"Orders","scope":"a b","grant_types":["client_credentials"],
		"audiences":["https://orders.example"],"token_ttl":60,"rate":"100/s","introspect":"audience","client_secret_expires_in":3600}`
	made := b.do("POST", "/clients", orders)
	body := made.object()
	if made.Code != http.StatusCreated || made.Header().Get("Location") != "/admin/v1/clients/orders" || made.Header().Get("ETag") != `"2"` {
		t.Fatalf("create: %d %v %s", made.Code, made.Header(), made.Body)
	}
	if err := clients.CheckSecret(body["client_secret"].(string)); err != nil || body["client_secret_expires_at"] != float64(noon.Unix()+3600) {
		t.Errorf("create: secret %v, ends %v", err, body["client_secret_expires_at"])
	}
	stored := b.store.stored["orders"]
	if stored.Name != "Orders" || stored.TokenTTL != time.Minute || stored.Introspect != clients.IntrospectAudience ||
		stored.Secrets[0].SHA256 != clients.Digest(body["client_secret"].(string)) || stored.Rate.String() != "100/s" {
		t.Errorf("stored: %+v", stored)
	}

	got := b.do("GET", "/clients/orders", "")
	if got.Code != http.StatusOK || got.object()["client_name"] != "Orders" || got.object()["client_secret"] != nil {
		t.Errorf("read: %d %s", got.Code, got.Body)
	}
	// A document that was read can be changed and sent back.
	edited := strings.Replace(got.Body.String(), `"disabled":false`, `"disabled":true`, 1)
	put := b.do("PUT", "/clients/orders", edited, "If-Match", got.Header().Get("ETag"))
	if put.Code != http.StatusOK || put.Header().Get("ETag") != `"3"` || !b.store.stored["orders"].Disabled || b.store.stored["orders"].Name != "Orders" {
		t.Errorf("replace: %d %s", put.Code, put.Body)
	}
	if gone := b.do("DELETE", "/clients/orders", "", "If-Match", `"3"`); gone.Code != http.StatusNoContent || len(b.store.stored) != 0 {
		t.Errorf("delete: %d %s", gone.Code, gone.Body)
	}
	if gone := b.do("GET", "/clients/orders", ""); gone.Code != http.StatusNotFound {
		t.Errorf("read after delete: %d", gone.Code)
	}
}

func TestCreateMakesAnID(t *testing.T) {
	b := newBench(t)
	first, second := b.do("POST", "/clients", `{}`).object(), b.do("POST", "/clients", `{}`).object()
	id := first["client_id"].(string)
	if !clients.ValidID(id) || !strings.HasPrefix(id, "client-") || id == second["client_id"] {
		t.Errorf("ids %v and %v", id, second["client_id"])
	}
}

// TestClientRefusals: each refusal of a request about clients, with its reason.
func TestClientRefusals(t *testing.T) {
	long := strings.Repeat("x", maxBody)
	tests := []struct {
		why, method, path, body string
		header                  []string
		status                  int
		faults                  []string
	}{
		{"the id is taken", "POST", "/clients", `{"client_id":"orders"}`, nil, 409, nil},
		{"the id is taken in the file", "POST", "/clients", `{"client_id":"configured"}`, nil, 409, nil},
		{"everything at once", "POST", "/clients", `{"client_id":"a b","scope":"x  y","token_ttl":-1,"rate":"fast","client_secret_expires_in":0,"wrong":1,"disabled":"no"}`, nil, 422,
			[]string{"/client_id", "/client_secret_expires_in", "/disabled", "/rate", "/scope", "/token_ttl", "/wrong"}},
		{"a path cannot name it", "POST", "/clients", `{"client_id":".."}`, nil, 422, []string{"/client_id"}},
		{"longer than the gateway allows", "POST", "/clients", `{"token_ttl":86401}`, nil, 422, []string{"/token_ttl"}},
		{"a secret where the log would have it", "POST", "/clients", `{"client_name":"sgs_0123456789012345678901234567890123456789012123456"}`, nil, 422, []string{"/client_name"}},
		{"what the server says", "POST", "/clients", `{"source":"file"}`, nil, 422, []string{"/source"}},
		{"a member twice", "POST", "/clients", `{"client_id":"a","client_id":"b"}`, nil, 422, []string{"/client_id"}},
		{"not an object", "POST", "/clients", `[]`, nil, 400, nil},
		{"not JSON", "POST", "/clients", `{"client_id":`, nil, 400, nil},
		{"two objects", "POST", "/clients", `{} {}`, nil, 400, nil},
		{"not UTF-8", "POST", "/clients", "{\"client_name\":\"\xff\"}", nil, 400, nil},
		{"too large", "POST", "/clients", `{"client_name":"` + long + `"}`, nil, 413, nil},
		{"a form", "POST", "/clients", `client_id=x`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, nil},
		{"text, as another site's page may send", "POST", "/clients", `{}`, []string{"Content-Type", "text/plain"}, 415, nil},
		{"compressed", "POST", "/clients", `{}`, []string{"Content-Encoding", "gzip"}, 415, nil},
		{"another charset", "POST", "/clients", `{}`, []string{"Content-Type", "application/json; charset=latin1"}, 415, nil},
		{"no body", "POST", "/clients", ``, nil, 415, nil},
		{"another site's page", "POST", "/clients", `{}`, []string{"Sec-Fetch-Site", "cross-site"}, 403, nil},
		{"another site's page in an old browser", "POST", "/clients", `{}`, []string{"Origin", "https://evil.example"}, 403, nil},
		{"another site's page reads", "GET", "/clients", ``, []string{"Sec-Fetch-Site", "cross-site"}, 403, nil},

		{"without If-Match", "PUT", "/clients/orders", `{"client_id":"orders"}`, nil, 428, nil},
		{"an old revision", "PUT", "/clients/orders", `{"client_id":"orders"}`, []string{"If-Match", `"1"`}, 412, nil},
		{"a weak tag", "PUT", "/clients/orders", `{"client_id":"orders"}`, []string{"If-Match", `W/"2"`}, 412, nil},
		{"a foreign tag", "PUT", "/clients/orders", `{"client_id":"orders"}`, []string{"If-Match", `"abc"`}, 412, nil},
		{"revision 0 is not every revision", "PUT", "/clients/orders", `{"client_id":"orders"}`, []string{"If-Match", `"0"`}, 412, nil},
		{"several tags", "PUT", "/clients/orders", `{"client_id":"orders"}`, []string{"If-Match", `"1", "2"`}, 400, nil},
		{"renamed", "PUT", "/clients/orders", `{"client_id":"other"}`, []string{"If-Match", "*"}, 422, []string{"/client_id"}},
		{"without its id", "PUT", "/clients/orders", `{}`, []string{"If-Match", "*"}, 422, []string{"/client_id"}},
		{"in the file", "PUT", "/clients/configured", `{"client_id":"configured"}`, []string{"If-Match", "*"}, 409, nil},
		{"unknown", "PUT", "/clients/nobody", `{"client_id":"nobody"}`, []string{"If-Match", "*"}, 404, nil},

		{"without If-Match", "DELETE", "/clients/orders", ``, nil, 428, nil},
		{"an old revision", "DELETE", "/clients/orders", ``, []string{"If-Match", `"1"`}, 412, nil},
		{"in the file", "DELETE", "/clients/configured", ``, []string{"If-Match", "*"}, 409, nil},
		{"unknown", "DELETE", "/clients/nobody", ``, []string{"If-Match", "*"}, 404, nil},
		{"unknown", "GET", "/clients/nobody", ``, nil, 404, nil},
		{"no id at all", "GET", "/clients/a*", ``, nil, 404, nil},

		{"no number", "GET", "/clients?limit=all", ``, nil, 400, []string{""}},
		{"too many", "GET", "/clients?limit=1001", ``, nil, 400, []string{""}},
		{"everything at once", "GET", "/clients?limit=0&after=*&source=x&disabled=maybe", ``, nil, 400, []string{"", "", "", ""}},
		{"unknown parameter", "GET", "/clients?page=2", ``, nil, 400, nil},
		{"a parameter twice", "GET", "/clients?limit=1&limit=2", ``, nil, 400, nil},

		{"a secret that is past", "POST", "/clients/orders/secrets", `{"expires_at":"2026-01-01T00:00:00Z"}`, nil, 422, []string{"/expires_at"}},
		{"two ends", "POST", "/clients/orders/secrets", `{"expires_at":"2027-01-01T00:00:00Z","expires_in":1}`, nil, 422, []string{"/expires_at"}},
		{"no instant and no number", "POST", "/clients/orders/secrets", `{"expires_at":5,"others_expire_in":"1"}`, nil, 422, []string{"/expires_at", "/others_expire_in"}},
		{"a text for the log with a line break", "POST", "/clients/orders/secrets", `{"reason":"a\nb"}`, nil, 422, []string{"/reason"}},
		{"an old revision", "POST", "/clients/orders/secrets", ``, []string{"If-Match", `"1"`}, 412, nil},
		{"in the file", "POST", "/clients/configured/secrets", ``, nil, 409, nil},
		{"unknown", "POST", "/clients/nobody/secrets", ``, nil, 404, nil},
		{"JSON that does not say so", "POST", "/clients/orders/secrets", `{}`, []string{"Content-Type", ""}, 415, nil},
		{"in the file", "DELETE", "/clients/configured/secrets/s1", ``, nil, 409, nil},
		{"unknown", "DELETE", "/clients/orders/secrets/s9", ``, nil, 404, nil},
		{"an old revision", "DELETE", "/clients/orders/secrets/s1", ``, []string{"If-Match", `"1"`}, 412, nil},
		{"unknown", "GET", "/clients/nobody/secrets", ``, nil, 404, nil},
		{"no such thing", "GET", "/nothing", ``, nil, 404, nil},
	}
	for _, tt := range tests {
		b := newBench(t)
		b.create("orders")
		got := b.do(tt.method, tt.path, tt.body, tt.header...)
		if got.Code != tt.status {
			t.Errorf("%s %s (%s) = %d %s, want %d", tt.method, tt.path, tt.why, got.Code, got.Body, tt.status)
		}
		if faults := got.faults(); !slices.Equal(faults, tt.faults) {
			t.Errorf("%s %s (%s): faults at %q, want %q: %s", tt.method, tt.path, tt.why, faults, tt.faults, got.Body)
		}
		if b.store.revision != 2 {
			t.Errorf("%s %s (%s) changed something", tt.method, tt.path, tt.why)
		}
	}
}

func TestMethodsAreTold(t *testing.T) {
	b := newBench(t)
	for path, allow := range map[string]string{
		"/clients": "GET, HEAD, POST", "/clients/x": "DELETE, GET, HEAD, PUT", "/revocations/x": "DELETE", "/health": "GET, HEAD",
	} {
		if got := b.do("PATCH", path, `{}`); got.Code != http.StatusMethodNotAllowed || got.Header().Get("Allow") != allow {
			t.Errorf("PATCH %s = %d, Allow %q, want 405, %q", path, got.Code, got.Header().Get("Allow"), allow)
		}
	}
	if got := b.do("HEAD", "/clients", ""); got.Code != http.StatusOK {
		t.Errorf("HEAD = %d", got.Code)
	}
}

// If the store cannot be reached, every operation that needs it responds with 503 and Retry-After.
func TestStoreIsAway(t *testing.T) {
	b := newBench(t)
	b.create("orders")
	b.store.err = fmt.Errorf("%w: %w", clients.ErrUnavailable, errStore)
	whatever := []string{"If-Match", "*"}
	for _, tt := range []struct {
		method, path, body string
		header             []string
	}{
		{"GET", "/clients", "", nil},
		{"POST", "/clients", `{}`, nil},
		{"GET", "/clients/orders", "", nil},
		{"PUT", "/clients/orders", `{"client_id":"orders"}`, whatever},
		{"DELETE", "/clients/orders", "", whatever},
		{"GET", "/clients/orders/secrets", "", nil},
		{"POST", "/clients/orders/secrets", "", nil},
		{"DELETE", "/clients/orders/secrets/s1", "", nil},
	} {
		got := b.do(tt.method, tt.path, tt.body, tt.header...)
		if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" || strings.Contains(got.Body.String(), errStore.Error()) {
			t.Errorf("%s %s = %d, Retry-After %q: %s", tt.method, tt.path, got.Code, got.Header().Get("Retry-After"), got.Body)
		}
	}
	if got := b.do("GET", "/clients/configured", ""); got.Code != http.StatusOK {
		t.Errorf("a configured client needs no store: %d", got.Code)
	}
}

func TestConditionalRead(t *testing.T) {
	b := newBench(t)
	tag, _ := b.create("orders")
	for condition, status := range map[string]int{tag: 304, "W/" + tag: 304, `"1", ` + tag: 304, "*": 304, `"1"`: 200} {
		if got := b.do("GET", "/clients/orders", "", "If-None-Match", condition); got.Code != status || got.Header().Get("ETag") != tag || (status == 304) != (got.Body.Len() == 0) {
			t.Errorf("If-None-Match: %s = %d %s, want %d", condition, got.Code, got.Body, status)
		}
	}
	// The use of a secret does not change the client, so the tag stays. The tag must not cover the
	// time of the use.
	b.store.used[clients.SecretRef{Client: "orders", Secret: "s1"}] = noon
	if got := b.do("GET", "/clients/orders", ""); got.Header().Get("ETag") != tag || strings.Contains(got.Body.String(), "last_used_at") {
		t.Errorf("after a use: ETag %s, %s", got.Header().Get("ETag"), got.Body)
	}
	if got := b.do("GET", "/clients/orders/secrets", ""); !strings.Contains(got.Body.String(), `"last_used_at":"2026-06-01T12:00:00Z"`) {
		t.Errorf("secrets: %s", got.Body)
	}
}

func TestClientPages(t *testing.T) {
	b := newBench(t)
	want := []string{"configured"}
	for i := range 7 {
		id := fmt.Sprintf("d%d", i)
		b.create(id)
		want = append(want, id)
	}
	var got []string
	for path := "/clients?limit=3&disabled=false"; path != ""; {
		page := b.do("GET", path, "")
		list := page.object()["clients"].([]any)
		if page.Code != http.StatusOK || len(list) > 3 {
			t.Fatalf("GET %s = %d, %d clients", path, page.Code, len(list))
		}
		for _, c := range list {
			got = append(got, c.(map[string]any)["client_id"].(string))
		}
		link := page.Header().Get("Link")
		path, _, _ = strings.Cut(strings.TrimPrefix(link, "<"+Prefix), ">")
		if link != "" && !strings.HasSuffix(link, `>; rel="next"`) {
			t.Fatalf("Link: %s", link)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages: %q, want %q", got, want)
	}
	if got := b.do("GET", "/clients?source=file", "").object()["clients"].([]any); len(got) != 1 {
		t.Errorf("source=file: %v", got)
	}
	if got := b.do("GET", "/clients?disabled=true", "").object()["clients"].([]any); len(got) != 0 {
		t.Errorf("disabled=true: %v", got)
	}
}

func TestSecretRotation(t *testing.T) {
	b := newBench(t)
	tag, first := b.create("orders")
	made := b.do("POST", "/clients/orders/secrets", `{"others_expire_in":3600,"expires_in":7200,"reason":"yearly"}`, "If-Match", tag)
	second := made.object()["client_secret"].(string)
	if made.Code != http.StatusCreated || second == first || made.Header().Get("Location") != "/admin/v1/clients/orders/secrets/s2" || made.Header().Get("ETag") != `"3"` {
		t.Fatalf("add: %d %v %s", made.Code, made.Header(), made.Body)
	}
	secrets := b.store.stored["orders"].Secrets
	if len(secrets) != 2 || !secrets[0].ExpiresAt.Equal(noon.Add(time.Hour)) || !secrets[1].ExpiresAt.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("stored: %+v", secrets)
	}
	if got := b.do("DELETE", "/clients/orders/secrets/s1", ""); got.Code != http.StatusNoContent || len(b.store.stored["orders"].Secrets) != 1 {
		t.Errorf("remove: %d %s", got.Code, got.Body)
	}
	for range clients.MaxSecrets - 1 {
		b.serveOnly("POST", "/clients/orders/secrets", "{}")
	}
	if got := b.do("POST", "/clients/orders/secrets", ""); got.Code != http.StatusConflict {
		t.Errorf("one secret more than there may be: %d %s", got.Code, got.Body)
	}
	b.create("billing")
	if got := b.do("POST", "/clients/billing/secrets", `{"others_expire_in":0}`); got.Code != http.StatusCreated || len(b.store.stored["billing"].Secrets) != 1 {
		t.Errorf("remove the others: %d, %+v", got.Code, b.store.stored["billing"].Secrets)
	}
}

func TestConcurrentCreates(t *testing.T) {
	b := newBench(t)
	const attempts = 50
	var wg sync.WaitGroup
	statuses := make([]int, attempts)
	for i := range attempts {
		wg.Go(func() { statuses[i] = b.serveOnly("POST", "/clients", `{"client_id":"one"}`) })
	}
	wg.Wait()
	made := 0
	for _, status := range statuses {
		if status == http.StatusCreated {
			made++
		} else if status != http.StatusConflict {
			t.Errorf("status %d", status)
		}
	}
	if made != 1 {
		t.Errorf("%d clients were made, want exactly one", made)
	}
}

// TestAudit: the audit lines say who did what to whom, and contain no secret.
func TestAudit(t *testing.T) {
	b := newBench(t)
	tag, first := b.create("orders")
	steps := []struct {
		method, path, body string
		header             []string
		action, outcome    string
	}{
		{"POST", "/clients", `{"client_id":"orders"}`, nil, "client.create", "refused"},
		{"PUT", "/clients/orders", `{"client_id":"orders","scope":"a"}`, []string{"If-Match", tag}, "client.update", "ok"},
		{"PUT", "/clients/orders", `{"client_id":"orders","disabled":true}`, []string{"If-Match", "*"}, "client.disable", "ok"},
		{"PUT", "/clients/orders", `{"client_id":"orders","disabled":true,"scope":"a"}`, []string{"If-Match", "*"}, "client.update", "ok"},
		{"PUT", "/clients/orders", `{"client_id":"orders"}`, []string{"If-Match", "*"}, "client.enable", "ok"},
		{"PUT", "/clients/orders", `{"client_id":"orders"}`, []string{"If-Match", tag}, "client.update", "refused"},
		{"POST", "/clients/orders/secrets", `{"reason":"leaked"}`, nil, "client.secret.add", "ok"},
		{"DELETE", "/clients/orders/secrets/s1", ``, nil, "client.secret.remove", "ok"},
		{"DELETE", "/clients/orders", ``, []string{"If-Match", "*"}, "client.delete", "ok"},
		{"POST", "/revocations", `{"client":"orders","reason":"gone"}`, nil, "revocation.create", "ok"},
		{"POST", "/revocations", `{"client":"orders","worker":1}`, nil, "revocation.create", "refused"},
		{"DELETE", "/revocations/client-orders", ``, nil, "revocation.delete", "refused"},
		{"DELETE", "/tokens/" + aToken, ``, nil, "token.revoke", "ok"},
		{"POST", "/keys", ``, nil, "key.rotate", "ok"},
	}
	secrets := []string{first}
	b.logHoldsNone(secrets)
	lines := b.audit()
	if len(lines) != 1 || lines[0]["action"] != "client.create" || lines[0]["outcome"] != "ok" || lines[0]["after"] == nil {
		t.Errorf("create: %v", lines)
	}
	for _, step := range steps {
		got := b.do(step.method, step.path, step.body, step.header...)
		if strings.Contains(got.Body.String(), "client_secret\"") {
			secrets = append(secrets, got.object()["client_secret"].(string))
		}
		b.logHoldsNone(secrets)
		lines := b.audit()
		if len(lines) != 1 {
			t.Fatalf("%s %s: %d lines", step.method, step.path, len(lines))
		}
		line := lines[0]
		if line["action"] != step.action || line["outcome"] != step.outcome || line["message"] != "audit" || line["level"] != "info" ||
			line["actor"] != "admin" || line["actor_token_id"] != "0000000000A" || line["request_id"] != "r1" {
			t.Errorf("%s %s: %v, want %s, %s", step.method, step.path, line, step.action, step.outcome)
		}
	}
	b.store.err = fmt.Errorf("%w: %w", clients.ErrUnavailable, errStore)
	b.do("POST", "/clients", `{"client_id":"late"}`)
	if lines := b.audit(); lines[0]["outcome"] != "failed" || lines[0]["target"] != "late" {
		t.Errorf("a failed change: %v", lines)
	}
}

// logHoldsNone fails the test if the log contains one of the secrets or its digest.
func (b *bench) logHoldsNone(secrets []string) {
	b.t.Helper()
	text := b.log.String()
	for _, secret := range secrets {
		digest := clients.Digest(secret)
		if strings.Contains(text, secret) || strings.Contains(text, hex.EncodeToString(digest[:])) || strings.Contains(text, "sgs_") {
			b.t.Errorf("the log holds a secret or a digest: %s", text)
		}
	}
}

func TestAuditShowsTheChange(t *testing.T) {
	b := newBench(t)
	b.create("orders")
	b.audit()
	b.do("PUT", "/clients/orders", `{"client_id":"orders","scope":"a"}`, "If-Match", "*")
	line := b.audit()[0]
	before, after := line["before"].(map[string]any), line["after"].(map[string]any)
	if before["scope"] != "a b" || after["scope"] != "a" || line["target"] != "orders" {
		t.Errorf("line %v", line)
	}
}

// TestAuditKeepsCallersSecretsOut: a text from a caller does not get into the log if it looks like
// a secret.
func TestAuditKeepsCallersSecretsOut(t *testing.T) {
	b := newBench(t)
	secret, _ := clients.NewSecret()
	text := secret.Reveal()
	for _, tt := range [][3]string{
		{"POST", "/clients", `{"client_id":"` + text + `"}`},
		{"POST", "/clients", `{"client_name":"` + text + `"}`},
		{"POST", "/clients", `{"` + text + `":1}`},
		{"PUT", "/clients/" + text, `{"client_id":"` + text + `"}`},
		{"DELETE", "/clients/" + text, ``},
		{"POST", "/revocations", `{"client":"` + text + `"}`},
		{"POST", "/revocations", `{"client":"a","reason":"was ` + text + `"}`},
		{"POST", "/revocations", `{"token":"` + text + `"}`},
		{"DELETE", "/revocations/" + text, ``},
		{"DELETE", "/tokens/" + text, ``},
		{"POST", "/keys", `{"reason":"` + text + `"}`},
	} {
		got := b.do(tt[0], tt[1], tt[2], "If-Match", "*")
		if got.Code < 400 {
			t.Errorf("%s %s %s = %d", tt[0], tt[1], tt[2], got.Code)
		}
		if b.log.Len() == 0 || strings.Contains(b.log.String(), text[4:20]) {
			t.Errorf("%s %s %s: log %q", tt[0], tt[1], tt[2], b.log)
		}
		b.log.Reset()
	}
}
