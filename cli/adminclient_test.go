package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"snowgate/clients"
)

// script is a gateway that answers as it is told, for both listeners.
type script struct {
	URL string

	t       *testing.T
	secret  string
	answers map[string][]reply // by method and path; the last one is repeated
	mu      sync.Mutex
	asked   []string // method, path and body
	headers []http.Header
}

// reply is one response.
type reply struct {
	status int
	header http.Header
	body   string
}

func newScript(t *testing.T, answers map[string][]reply) *script {
	t.Helper()
	secret, _ := clients.NewSecret()
	s := &script{t: t, secret: secret.Reveal(), answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/oauth2/token" {
		if id, secret, _ := r.BasicAuth(); id != "admin" || secret != s.secret || r.FormValue("scope") != "snowgate:admin" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"Client authentication failed."}`)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"the-token","token_type":"Bearer","expires_in":60}`)
		return
	}
	if r.Header.Get("Authorization") != "Bearer the-token" {
		s.t.Errorf("%s %s without the token", r.Method, r.URL)
	}
	body, _ := io.ReadAll(r.Body)
	what := r.Method + " " + strings.TrimPrefix(r.URL.RequestURI(), "/admin/v1")
	s.asked = append(s.asked, strings.TrimSpace(what+" "+strings.TrimSpace(string(body))))
	s.headers = append(s.headers, r.Header)
	left := s.answers[what]
	if len(left) == 0 {
		s.t.Errorf("asked for %s", what)
		return
	}
	if len(left) > 1 {
		s.answers[what] = left[1:]
	}
	for name, values := range left[0].header {
		w.Header()[name] = values
	}
	w.WriteHeader(left[0].status)
	_, _ = io.WriteString(w, left[0].body)
}

// call runs a command against the script.
func (s *script) call(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	environ := []string{"SNOWGATE_ADMIN_CLIENT_SECRET=" + s.secret}
	address := strings.TrimPrefix(s.URL, "http://")
	environ = append(environ, "SNOWGATE_ADMIN_LISTEN="+address, "SNOWGATE_LISTEN="+address)
	code, stdout, stderr = call(s.t, "", environ, args...)
	if strings.Contains(stdout+stderr, s.secret) || strings.Contains(stdout+stderr, "the-token") {
		s.t.Errorf("snowgate %q prints its credentials: %s%s", args, stdout, stderr)
	}
	return code, stdout, stderr
}

func good(body string) []reply { return []reply{{status: 200, body: body}} }

func TestAdminCommandsTellAllFaults(t *testing.T) {
	const missing = "SNOWGATE_ADMIN_CLIENT_SECRET"
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"client", "list"}, []string{missing}},
		{[]string{"client", "list", "-output", "xml", "-admin-url", "nowhere", "-url", "http://u:p@h/", "-client-id", "a b"},
			[]string{missing, "-output", "-admin-url", "-url", "-client-id"}},
		{[]string{"client", "show"}, []string{"client id", missing}},
		{[]string{"client", "show", "a", "b"}, []string{`unexpected argument "b"`}},
		{[]string{"client", "create", "a b", "-scope", "x  y", "-audience", "nowhere", "-ttl", "1ms", "-rate", "fast", "-introspect", "all", "-expires", "-1s"},
			[]string{"client id", "-scope", "-audience", "-ttl", "-rate", "-introspect", "-expires", missing}},
		{[]string{"client", "rotate", "a", "-overlap", "-1h"}, []string{"-overlap", missing}},
		{[]string{"revoke"}, []string{"exactly one", missing}},
		{[]string{"revoke", "-token", "sgt_x", "-client", "a b", "-from", "yesterday", "-before", "today"},
			[]string{"exactly one", "-token", "-client", "-from", "-before", "need -worker", missing}},
		{[]string{"revoke", "-worker", "1"}, []string{"-from", "-until"}},
		{[]string{"key", "rotate", "now"}, []string{`unexpected argument "now"`}},
	}
	for _, tt := range tests {
		code, stdout, stderr := call(t, "", nil, tt.args...)
		if code != exitUsage || stdout != "" {
			t.Errorf("snowgate %q: exit code %d, output %q, want %d and none", tt.args, code, stdout, exitUsage)
		}
		for _, want := range tt.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("snowgate %q complains %q, want %q in it", tt.args, stderr, want)
			}
		}
		if strings.Contains(stderr, "sgt_x") {
			t.Errorf("snowgate %q repeats what may be a token", tt.args)
		}
	}
}

func TestAdminSecretIsChecked(t *testing.T) {
	for name, environ := range map[string][]string{
		"mistyped":   {"SNOWGATE_ADMIN_CLIENT_SECRET=sgs_mistyped"},
		"no file":    {"SNOWGATE_ADMIN_CLIENT_SECRET_FILE=" + filepath.Join(t.TempDir(), "none")},
		"both":       {"SNOWGATE_ADMIN_CLIENT_SECRET=x", "SNOWGATE_ADMIN_CLIENT_SECRET_FILE=y"},
		"not at all": {"SNOWGATE_REDIS_URL=irrelevant"},
	} {
		code, _, stderr := call(t, "", environ, "client", "list")
		if code != exitUsage || !strings.Contains(stderr, "ADMIN_CLIENT_SECRET") || strings.Contains(stderr, "sgs_mistyped") {
			t.Errorf("%s: exit code %d, %q", name, code, stderr)
		}
	}
}

// The defaults are those of the gateway whose variables the command has.
func TestAdminURLsFollowTheGateway(t *testing.T) {
	tests := []struct{ environ, admin, public string }{
		{"", "http://127.0.0.1:9090", "http://127.0.0.1:8080"},
		{"SNOWGATE_ADMIN_LISTEN=172.29.86.10:9090 SNOWGATE_LISTEN=:8443", "http://172.29.86.10:9090", "http://127.0.0.1:8443"},
		{"SNOWGATE_ADMIN_LISTEN=[::]:1 SNOWGATE_TLS_CERT=c.pem", "http://127.0.0.1:1", "https://127.0.0.1:8080"},
		{"SNOWGATE_TLS_CERT=c.pem SNOWGATE_ISSUER=https://gate.example", "http://127.0.0.1:9090", "https://gate.example"},
	}
	for _, tt := range tests {
		p := &Process{Environ: strings.Fields(tt.environ)}
		shared := addAdminFlags(p, newFlags("x"))
		if *shared.adminURL != tt.admin || *shared.publicURL != tt.public {
			t.Errorf("%s: %s and %s, want %s and %s", tt.environ, *shared.adminURL, *shared.publicURL, tt.admin, tt.public)
		}
	}
}

const ordersJSON = `{"client_id":"orders","scope":"a b","audiences":[],"introspect":"none","disabled":false,"source":"registry","unknown":{"kept":1},` +
	`"secrets":[{"id":"s1","created_at":"2026-06-01T12:00:00Z","last_used_at":"2026-06-02T12:00:00Z"}]}`

func TestClientListFollowsThePages(t *testing.T) {
	s := newScript(t, map[string][]reply{
		"GET /clients?limit=1000":              {{200, http.Header{"Link": {`<http://elsewhere.example/>; rel="next"`}}, `{"clients":[` + ordersJSON + `]}`}},
		"GET /clients?after=orders&limit=1000": good(`{"clients":[{"client_id":"z","disabled":true,"source":"file"}]}`),
	})
	code, stdout, stderr := s.call("client", "list")
	const want = "CLIENT  SOURCE    STATE     SECRETS  LAST USED             SCOPE\n" +
		"orders  registry  enabled   1        2026-06-02T12:00:00Z  a b\n" +
		"z       file      disabled  0        never                 \n"
	if code != exitOK || stdout != want {
		t.Errorf("list: %d %q %s", code, stdout, stderr)
	}
	code, stdout, _ = s.call("client", "list", "-output", "json")
	var list []shownClient
	if err := json.Unmarshal([]byte(stdout), &list); code != exitOK || err != nil || len(list) != 2 {
		t.Errorf("list as JSON: %d %q, %v", code, stdout, err)
	}
}

func TestClientShow(t *testing.T) {
	s := newScript(t, map[string][]reply{
		"GET /clients/orders":         good(ordersJSON),
		"GET /clients/orders/secrets": good(`{"secrets":[{"id":"s1","expires_at":"2027-01-01T00:00:00Z","last_used_at":"2026-06-03T12:00:00Z"}]}`),
	})
	// The id may stand before and behind the flags.
	for _, args := range [][]string{{"client", "show", "orders", "-output", "table"}, {"client", "show", "-output", "table", "orders"}} {
		code, stdout, stderr := s.call(args...)
		for _, want := range []string{"client      orders\n", "scope       a b\n", "s1      -        2027-01-01T00:00:00Z  2026-06-03T12:00:00Z\n"} {
			if code != exitOK || !strings.Contains(stdout, want) {
				t.Errorf("%q: %d %q %s, want %q in it", args, code, stdout, stderr, want)
			}
		}
	}
}

func TestClientCreateShowsTheSecretOnce(t *testing.T) {
	secret, _ := clients.NewSecret()
	made := reply{201, nil, fmt.Sprintf(`{"client_id":"orders","scope":"a","client_secret":%q,"client_secret_expires_at":1780315200,"note":"A note."}`, secret.Reveal())}
	args := []string{"client", "create", "orders", "-scope", "a", "-audience", "https://a.example", "-ttl", "30m", "-rate", "10/m", "-introspect", "any", "-expires", "720h", "-name", "Orders"}
	const want = `POST /clients {"client_id":"orders","client_name":"Orders","scope":"a","audiences":["https://a.example"],` +
		`"token_ttl":1800,"rate":"10/m","introspect":"any","client_secret_expires_in":2592000}`
	for _, tt := range []struct{ flag, stdout string }{
		{"", "client_id:     orders\nclient_secret: " + secret.Reveal() + "\n\nThe secret is shown this once and stored nowhere.\nIt is good until 2026-06-01T12:00:00Z.\nA note.\n"},
		{"-quiet", secret.Reveal() + "\n"},
		{"-output=json", ""},
	} {
		s := newScript(t, map[string][]reply{"POST /clients": {made}})
		code, stdout, stderr := s.call(append(slices.Clone(args), strings.Fields(tt.flag)...)...)
		if code != exitOK || tt.stdout != "" && stdout != tt.stdout || strings.Contains(stderr, secret.Reveal()) || strings.Count(stdout, secret.Reveal()) != 1 {
			t.Errorf("create %s: %d %q %s", tt.flag, code, stdout, stderr)
		}
		if s.asked[0] != want {
			t.Errorf("create sends %s, want %s", s.asked[0], want)
		}
	}
}

func TestClientRotate(t *testing.T) {
	secret, _ := clients.NewSecret()
	for _, tt := range []struct{ flag, body, said string }{
		{"", `{"others_expire_in":86400}`, "good for 24h0m0s more"},
		{"-overlap=90s", `{"others_expire_in":90}`, "good for 1m30s more"},
		{"-remove-old", `{"others_expire_in":0}`, "are removed"},
		{"-expires=1h", `{"expires_in":3600,"others_expire_in":86400}`, ""},
	} {
		s := newScript(t, map[string][]reply{"POST /clients/orders/secrets": {{201, nil, `{"id":"s2","client_secret":"` + secret.Reveal() + `","client_secret_expires_at":0}`}}})
		code, stdout, stderr := s.call(append([]string{"client", "rotate", "orders"}, strings.Fields(tt.flag)...)...)
		if code != exitOK || !strings.Contains(stdout, tt.said) || !strings.Contains(stdout, secret.Reveal()) || s.asked[0] != "POST /clients/orders/secrets "+tt.body {
			t.Errorf("rotate %s: %d %q %s, asked %q", tt.flag, code, stdout, stderr, s.asked)
		}
	}
}

// Disabling a client must not undo the change of somebody else, nor fail because of it.
func TestClientDisableReadsAgain(t *testing.T) {
	conflict := reply{412, nil, `{"title":"Precondition Failed","detail":"The client was changed meanwhile."}`}
	s := newScript(t, map[string][]reply{
		"GET /clients/orders": {{200, http.Header{"Etag": {`"4"`}}, ordersJSON}, {200, http.Header{"Etag": {`"5"`}}, ordersJSON}},
		"PUT /clients/orders": {conflict, {200, nil, `{"client_id":"orders","disabled":true}`}},
	})
	code, stdout, stderr := s.call("client", "disable", "orders")
	if code != exitOK || stdout != "orders is disabled\n" || len(s.asked) != 4 {
		t.Fatalf("disable: %d %q %s after %q", code, stdout, stderr, s.asked)
	}
	if s.headers[1].Get("If-Match") != `"4"` || s.headers[3].Get("If-Match") != `"5"` {
		t.Errorf("If-Match: %q and %q", s.headers[1].Get("If-Match"), s.headers[3].Get("If-Match"))
	}
	if !strings.Contains(s.asked[3], `"disabled":true`) || !strings.Contains(s.asked[3], `"unknown":{"kept":1}`) {
		t.Errorf("disable sends %s", s.asked[3])
	}
	// A second time is the end of it.
	s.answers["PUT /clients/orders"] = []reply{conflict}
	if code, _, stderr := s.call("client", "enable", "orders"); code != exitFailed || !strings.Contains(stderr, "412 The client was changed meanwhile.") {
		t.Errorf("enable: %d %s", code, stderr)
	}
}

func TestClientDelete(t *testing.T) {
	s := newScript(t, map[string][]reply{
		"GET /clients/orders":    {{200, http.Header{"Etag": {`"4"`}}, ordersJSON}},
		"DELETE /clients/orders": {{204, nil, ""}},
	})
	code, stdout, stderr := s.call("client", "delete", "orders")
	if code != exitOK || stdout != "orders is deleted, and its live tokens with it\n" || s.headers[1].Get("If-Match") != `"4"` {
		t.Errorf("delete: %d %q %s", code, stdout, stderr)
	}
}

func TestRevokeCommand(t *testing.T) {
	for args, want := range map[string]string{
		"-token 00000000001 -reason leaked": `{"token":"00000000001","reason":"leaked"}`,
		"-client orders":                    `{"client":"orders"}`,
		"-worker 0 -from 2026-06-01T10:00:00Z -until 2026-06-01T11:00:00Z": `{"worker":0,"from":"2026-06-01T10:00:00Z","until":"2026-06-01T11:00:00Z"}`,
		"-before 2026-06-01T10:00:00Z":                                     `{"before":"2026-06-01T10:00:00Z"}`,
	} {
		s := newScript(t, map[string][]reply{
			"GET /clients/orders":            good(ordersJSON),
			"GET /tokens/00000000001":        good(`{"token_id":"00000000001","active":true}`),
			"POST /revocations":              {{201, nil, `{"id":"the-rule","kind":"x","ends_at":"2026-06-02T12:00:00Z"}`}},
			"POST /revocations?dry_run=true": good(`{"id":"the-rule","kind":"x","count":{"live_tokens":1,"seen":3}}`),
		})
		code, stdout, stderr := s.call(append([]string{"revoke"}, strings.Fields(args)...)...)
		if code != exitOK || !strings.HasPrefix(stdout, "revoked: the-rule\n") || !slices.Contains(s.asked, "POST /revocations "+want) {
			t.Errorf("revoke %s: %d %q %s, asked %q", args, code, stdout, stderr, s.asked)
		}
	}
}

// Revoking something that does not exist is an error without -force.
func TestRevokeCommandOfTheUnknown(t *testing.T) {
	for args, want := range map[string]string{
		"-token 00000000001": "there is no live token with the id 00000000001",
		"-client orderz":     `there is no client "orderz"; did you mean orders?`,
		"-worker 7 -from 2026-06-01T10:00:00Z -until 2026-06-01T11:00:00Z": "no live token was issued by worker 7 in that interval",
	} {
		s := newScript(t, map[string][]reply{
			"GET /clients/orderz":            {{404, nil, `{"title":"Not Found"}`}},
			"GET /clients?limit=1000":        good(`{"clients":[{"client_id":"admin"},{"client_id":"orders"}]}`),
			"GET /tokens/00000000001":        {{404, nil, `{"title":"Not Found"}`}},
			"POST /revocations":              {{201, nil, `{"id":"the-rule","kind":"x"}`}},
			"POST /revocations?dry_run=true": good(`{"id":"the-rule","kind":"x","count":{"live_tokens":0,"seen":3}}`),
		})
		code, stdout, stderr := s.call(append([]string{"revoke"}, strings.Fields(args)...)...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "-force") {
			t.Errorf("revoke %s: %d %q %q, want %q", args, code, stdout, stderr, want)
		}
		if code, stdout, stderr := s.call(append([]string{"revoke", "-force"}, strings.Fields(args)...)...); code != exitOK || !strings.HasPrefix(stdout, "revoked: the-rule\n") {
			t.Errorf("revoke -force %s: %d %q %q", args, code, stdout, stderr)
		}
	}
}

const onWorker = "revoke -worker 3 -datacenter 1 -from 2026-06-01T10:00:00Z -until 2026-06-01T11:00:00Z"

// A count of several steps is the sum of them, and tells on standard error how far it is.
func TestRevokeCommandCounts(t *testing.T) {
	const first, second = "POST /revocations?dry_run=true", "POST /revocations?cursor=0.17&dry_run=true"
	const body = ` {"worker":3,"datacenter":1,"from":"2026-06-01T10:00:00Z","until":"2026-06-01T11:00:00Z"}`
	s := newScript(t, map[string][]reply{
		"POST /revocations": {{201, nil, `{"id":"worker-35","kind":"worker"}`}},
		first:               good(`{"id":"worker-35","kind":"worker","count":{"live_tokens":2,"seen":1000,"next":"0.17"}}`),
		second:              good(`{"id":"worker-35","kind":"worker","count":{"live_tokens":5,"seen":500}}`),
	})
	const progress = "counting: 2 live tokens so far, of 1000 looked at\n"
	const asked = first + body + "|POST /revocations" + body + "|" + first + body + "|" + second + body
	tests := []struct{ flag, stdout, asked string }{
		{"-dry-run", "would revoke: worker-35\nIt would cover 7 live tokens. Nothing was written.\n", first + body + "|" + second + body},
		{"", "revoked: worker-35\nIt covers 7 live tokens.\n", asked},
	}
	for _, tt := range tests {
		s.asked = nil
		code, stdout, stderr := s.call(strings.Fields(onWorker + " " + tt.flag)...)
		if code != exitOK || stdout != tt.stdout || stderr != progress || strings.Join(s.asked, "|") != tt.asked {
			t.Errorf("revoke %s: %d %q %q, asked %q", tt.flag, code, stdout, stderr, s.asked)
		}
	}
	s.asked = nil
	if code, stdout, _ := s.call(strings.Fields(onWorker + " -count-timeout 0")...); code != exitOK || stdout != "revoked: worker-35\n" || len(s.asked) != 1 {
		t.Errorf("without a count: %d %q, asked %q", code, stdout, s.asked)
	}
	if _, stdout, _ := s.call(strings.Fields(onWorker + " -output json")...); !strings.Contains(stdout, `"live_tokens": 7`) {
		t.Errorf("as JSON: %s", stdout)
	}
}

// A rule is in force although it was not counted; a dry run without a count is a failure.
func TestRevokeCommandWithoutACount(t *testing.T) {
	s := newScript(t, map[string][]reply{
		"POST /revocations":              {{201, nil, `{"id":"worker-35","kind":"worker"}`}},
		"POST /revocations?dry_run=true": {{503, nil, `{"title":"Service Unavailable"}`}},
	})
	code, stdout, stderr := s.call(strings.Fields(onWorker)...)
	if code != exitOK || stdout != "revoked: worker-35\n" || !strings.Contains(stderr, "The rule is in force") {
		t.Errorf("revoke: %d %q %q", code, stdout, stderr)
	}
	if code, stdout, stderr := s.call(strings.Fields(onWorker + " -dry-run")...); code != exitFailed || stdout != "" || !strings.Contains(stderr, "503") {
		t.Errorf("dry run: %d %q %q", code, stdout, stderr)
	}
	code, _, stderr = call(t, "", nil, "revoke", "-client", "a", "-dry-run", "-count-timeout", "0s")
	if code != exitUsage || !strings.Contains(stderr, "-dry-run: not with -client") || !strings.Contains(stderr, "-count-timeout") {
		t.Errorf("a client: %d %q", code, stderr)
	}
}

func TestKeyCommands(t *testing.T) {
	s := newScript(t, map[string][]reply{
		"GET /keys":  good(`{"keys":[{"state":"old"},{"starts_at":"2026-06-01T12:00:00Z","state":"current"}]}`),
		"POST /keys": {{201, nil, `{"starts_at":"2026-06-01T12:01:00Z","state":"next"}`}},
	})
	if code, stdout, stderr := s.call("key", "list"); code != exitOK || stdout != "STARTS                STATE\nwith the deployment   old\n2026-06-01T12:00:00Z  current\n" {
		t.Errorf("key list: %d %q %s", code, stdout, stderr)
	}
	if code, stdout, stderr := s.call("key", "rotate", "-reason", "yearly"); code != exitOK || !strings.Contains(stdout, "2026-06-01T12:01:00Z") || s.asked[1] != `POST /keys {"reason":"yearly"}` {
		t.Errorf("key rotate: %d %q %s", code, stdout, stderr)
	}
}

func TestAdminCommandsExplainRefusals(t *testing.T) {
	s := newScript(t, map[string][]reply{
		"POST /clients": {{422, nil, `{"title":"Unprocessable Entity","detail":"The document has faults.","errors":[{"pointer":"/scope","detail":"is wrong"},{"pointer":"","detail":"all of it"}]}`}},
		"GET /keys":     {{302, http.Header{"Location": {"/admin/v1/elsewhere"}}, ""}},
		"POST /keys":    {{200, nil, "<html>"}},
	})
	const want = "snowgate: the gateway responds with 422 The document has faults.\n  /scope is wrong\n  all of it\n"
	if code, _, stderr := s.call("client", "create", "x"); code != exitFailed || stderr != want {
		t.Errorf("create: %d %q, want %q", code, stderr, want)
	}
	if code, _, stderr := s.call("key", "list"); code != exitFailed || !strings.Contains(stderr, "302 Found") {
		t.Errorf("a redirection: %d %q", code, stderr)
	}
	if code, _, stderr := s.call("key", "rotate"); code != exitFailed || !strings.Contains(stderr, "not one of the admin API") {
		t.Errorf("another server: %d %q", code, stderr)
	}
	other, _ := clients.NewSecret()
	code, _, stderr := call(t, "", []string{"SNOWGATE_ADMIN_CLIENT_SECRET=" + other.Reveal()}, "key", "list", "-url", s.URL, "-admin-url", s.URL)
	if code != exitFailed || stderr != "snowgate: getting a token: invalid_client: Client authentication failed.\n" {
		t.Errorf("a wrong secret: %d %q", code, stderr)
	}
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	code, _, stderr = call(t, "", []string{"SNOWGATE_ADMIN_CLIENT_SECRET=" + other.Reveal()}, "key", "list", "-url", elsewhere.URL)
	if code != exitFailed || !strings.Contains(stderr, "404") || !strings.Contains(stderr, "is -url that of the gateway?") {
		t.Errorf("a wrong URL: %d %q", code, stderr)
	}
}
