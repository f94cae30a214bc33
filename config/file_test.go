package config

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v4"

	"snowgate/clients"
	"snowgate/limit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testNow = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

var testRules = fileRules{maxTTL: 24 * time.Hour, now: testNow}

// parse is parseFile of a text under a short name.
func parse(text string) (File, error) { return parseFile("f", []byte(text), testRules) }

func TestParseGoodFile(t *testing.T) {
	content, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseFile("good.yaml", content, testRules)
	if err != nil {
		t.Fatal(err)
	}
	want := File{
		Clients: []clients.Client{{
			ID: "orders-worker", Name: "Orders, nightly",
			Secrets: []clients.Secret{
				{ID: "s1", SHA256: clients.Digest("a digest of the tests of package config"), ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
				{ID: "s2", SHA256: clients.Digest("another digest of the tests")}, // hexadecimal in capitals
			},
			Scopes: "orders.read orders.write", Audiences: []string{"https://orders.example"}, TokenTTL: 30 * time.Minute,
			Rate: limit.Rate{Count: 100, Per: time.Second}, Introspect: clients.IntrospectAudience, Disabled: true,
		}, {
			ID:      "admin",
			Secrets: []clients.Secret{{ID: "s1", SHA256: [32]byte{0x1e, 0x10}}}, // YAML takes this for a number
			Scopes:  "snowgate:admin", Introspect: clients.IntrospectAny,
		}},
		Routes: []Route{{
			Name: "orders", Host: "orders.example", Path: "/orders",
			Upstreams:   []url.URL{{Scheme: "http", Host: "orders:8080"}, {Scheme: "https", Host: "orders2"}},
			StripPrefix: true, Methods: []string{"GET", "POST"}, Scopes: "orders.read", Audience: "https://orders.example",
			WebSocket: true, PassToken: true, Timeout: 90 * time.Second, MaxBody: 3 << 19, AllowEncodedSlash: true,
			Transport: TransportStandard, Balance: LeastInFlight, Health: HealthCheck{Path: "/livez", Interval: 2 * time.Second, Timeout: time.Second}, MaxInFlight: 100,
			Rate: limit.Rate{Count: 500, Per: time.Second}, ClientRate: limit.Rate{Count: 10, Per: time.Second},
			AddPrefix: "/v2", HostHeader: "orders.internal",
			EditRequest:  Edits{Set: map[string]string{"X-Env": "prod", "Authorization": "Basic c2VjcmV0"}, Remove: []string{"Cookie"}},
			EditResponse: Edits{Set: map[string]string{"Server": "snowgate"}, Remove: []string{"X-Powered-By"}},
			CORS: CORS{
				Origins: []string{"https://app.example", "https://*.example.com"}, Methods: []string{"GET"},
				RequestHeaders: []string{"Authorization", "X-Trace"}, ExposedHeaders: []string{"Etag"}, Credentials: true, MaxAge: time.Hour,
			},
		}, {
			Name: "rest", Path: "/", Upstreams: []url.URL{{Scheme: "http", Host: "[::1]:8080"}}, Public: true,
			Timeout: 30 * time.Second, MaxBody: 10 << 20, Balance: RoundRobin, PreserveHost: true,
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(File{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// All faults of a file come at once, each with its line and column.
func TestAllFaultsAtOnce(t *testing.T) {
	content, err := os.ReadFile("testdata/faults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = parseFile("faults.yaml", content, testRules)
	if err == nil {
		t.Fatal("no faults")
	}
	golden(t, "testdata/faults.golden", err.Error()+"\n")
	for _, canary := range []string{"sgs_0", "hunter2"} {
		if strings.Contains(err.Error(), canary) {
			t.Errorf("a fault repeats the secret %s", canary)
		}
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// Each of these is refused with exactly one line.
func TestRefusedDocuments(t *testing.T) {
	deep := strings.Repeat("[", 100)
	bomb := "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nclients: [*b,*b,*b]\n"
	tests := []struct{ text, want, reason string }{
		{"", `f:1:1: the file is empty; write "clients: []" to have no clients and no routes`, "cut to nothing while being written"},
		{"# nothing\n", `f:1:1: the file is empty; write "clients: []" to have no clients and no routes`, "only a comment"},
		{"---\n", `f:1:1: the file is empty; write "clients: []" to have no clients and no routes`, "an empty document"},
		{"~", `f:1:1: the file is empty; write "clients: []" to have no clients and no routes`, "null"},
		{"[]", "f:1:1: the file must be a mapping of keys to values, not a list", "another shape"},
		{"text", "f:1:1: the file must be a mapping of keys to values, not a single value", "another shape"},
		{"clients: []\nclients: []", `f:2:1: key "clients" is given twice, first at 1:1`, "duplicate key"},
		{"{clients: [], \"clients\": []}", `f:1:15: key "clients" is given twice, first at 1:2`, "duplicate key in another spelling"},
		{"clients: []\n---\nclients: []", "f:2:1: a second document begins here; only one is allowed", "two documents"},
		{"clients: []\n---\n", "f:2:1: a second document begins here; only one is allowed", "two documents, one empty"},
		{"clients: []\n--- [\n", "f:3:1: not YAML: while parsing a flow node: did not find expected node content", "a second document that is broken"},
		{"client: []", `f:1:1: unknown key "client" in the file; did you mean clients?`, "typing error"},
		{"gateways: []", `f:1:1: unknown key "gateways" in the file`, "nothing like it"},
		{"sgs_secret: 1", `f:1:1: unknown key [redacted] in the file`, "a secret in the wrong place"},
		{"? [a]\n: b", "f:1:3: a key of the file must be a name, not a list", "complex key"},
		{"<<: {clients: []}", `f:1:1: unknown key "<<" in the file`, "merge key"},
		{bomb, "f:1:4: anchors are not allowed", "anchors that unfold"},
		{"clients: &a [*a]", "f:1:10: anchors are not allowed", "an anchor that contains itself"},
		{"clients: *a", "f:1:10: not YAML: unknown anchor 'a' referenced", "an alias of nothing"},
		{"clients: !!binary aGk=", "f:1:10: tags are not allowed", "tag"},
		{"clients: !custom []", "f:1:10: tags are not allowed", "tag"},
		{"clients: " + deep, "f:1:26: not YAML: while increasing flow level: exceeded max depth of 16", "deep nesting"},
		{"clients: [", "f:2:1: not YAML: while parsing a flow node: did not find expected node content", "cut short"},
		{"clients:\n\t- id: a", "f:2:1: not YAML: a tab; YAML is indented with spaces", "tab"},
		{"routes:\n  - name: a\n    path: /a\n\tmethods: []", "f:4:1: not YAML: a tab; YAML is indented with spaces", "tab behind a value"},
		{"routes:\n  - name: a\n  \tpath: /a", "f:3:3: not YAML: a tab; YAML is indented with spaces", "tab behind spaces"},
		{"clients: @a", "f:1:10: not YAML: while scanning for the next token: found character that cannot start any token", "no tab"},
		{"clients: []\nroutes: \"\xff\"", "f:2:10: this is not UTF-8", "bytes"},
		{"clients: []\n# \x00", "f:2:3: control character U+0000", "NUL"},
		{"\xff\xfec\x00", "f:1:1: this is not UTF-8", "UTF-16"},
		{"clients: {id: a}", "f:1:10: clients must be a list, not a mapping", "a mapping for a list"},
		{"clients: [{id: }]", "f:1:16: client id has no value", "no value"},
		{"clients: [{id: a, token_ttl: 90}]", `f:1:30: "90" is not a duration such as 250ms, 90s or 1h30m`, "a number without unit"},
		{"clients: [{id: a, introspect: \"true\"}]", "f:1:31: introspect must be true, false or audience", "a text for a boolean"},
		{"clients: [{id: a, introspect: any}]", "f:1:31: introspect must be true, false or audience", "the word of the API"},
		{"clients: [{id: a, introspect: [audience]}]", "f:1:31: introspect must be true, false or audience", "a list"},
		{"clients: [{id: a, disabled: 1}]", "f:1:29: disabled must be true or false", "a number"},
		{"clients: [{id: a, name: \" x\"}]", `f:1:25: name " x" is not ` + clients.NameWanted, "a space in front"},
		{"clients: [{id: ..}]", `f:1:16: client id ".." is not ` + idWanted, "no path can name it"},
		{"clients: [{id: a, introspect: }]", "f:1:31: introspect must be true, false or audience", "nothing for a boolean"},
	}
	for _, tt := range tests {
		_, err := parse(tt.text)
		var faults Faults
		if !errors.As(err, &faults) {
			t.Errorf("parse(%.60q) = %v, want a fault: %s", tt.text, err, tt.reason)
			continue
		}
		if got := faults[0].Error(); got != tt.want {
			t.Errorf("parse(%.60q):\n got %s\nwant %s\n%s", tt.text, got, tt.want, tt.reason)
		}
	}
}

func TestRoutes(t *testing.T) {
	tests := []struct {
		route string // after name and upstreams
		want  string // the fault, empty if it is fine
	}{
		{"path: /", ""},
		{"path: /oauth2x", ""},
		{"path: /OAuth2", ""},      // paths are case-sensitive
		{"path: /.well-known", ""}, // the gateway's own paths below it win, as with "/"
		{"path: /.well-known/openid-configuration", ""},
		{"path: /oauth2", `path "/oauth2" belongs to the gateway itself, which answers /oauth2`},
		{"path: /oauth2/auth", `path "/oauth2/auth" belongs to the gateway itself, which answers /oauth2`},
		{"{path: /livez, host: other.example}", `path "/livez" belongs to the gateway itself, which answers /livez`}, // on every host
		{"path: /readyz/x", `path "/readyz/x" belongs to the gateway itself, which answers /readyz`},
		{"path: /.well-known/oauth-protected-resource/a", `path "/.well-known/oauth-protected-resource/a" belongs to the gateway itself, which answers /.well-known/oauth-protected-resource`},
		{"path: /%6fauth2", `path "/%6fauth2" is not a route's: the path of a route is written without percent-encoding`},
		{"path: orders", `path "orders" is not a route's: the path does not start with a slash`},
		{"path: //orders", `path "//orders" is not a route's: the path has an empty segment`},
		{"path: ''", `path "" is not a route's: the path does not start with a slash`},
		{"{path: /a, host: 10.0.0.1}", ""},
		{"{path: /a, host: '[::1]'}", ""},
		{"{path: /a, host: '*.example'}", `host "*.example" is not a host name or address without a port`},
		{"{path: /a, host: 'a.example:80'}", `host "a.example:80" is not a host name or address without a port`},
		{"{path: /a, host: 'a.example:'}", `host "a.example:" is not a host name or address without a port`},
		{"{path: /a, host: '[::1]:80'}", `host "[::1]:80" is not a host name or address without a port`},
		{"{path: /a, host: 'http://a'}", `host "http://a" is not a host name or address without a port`},
		{"{path: /a, public: true, scopes: []}", ""}, // asks for nothing
		{"{path: /a, public: true, scopes: [x]}", "a public route asks for no token and so for no scopes"},
		{"{path: /a, public: true, audience: 'https://a'}", "a public route asks for no token and so for no audience"},
		{"{path: /a, methods: [M-SEARCH, PROPFIND]}", ""},
		{"{path: /a, methods: [TRACE]}", `"TRACE" is not a method in capitals, other than CONNECT and TRACE`},
		{"{path: /a, methods: [GET, GET]}", `"GET" is listed twice`},
		{"{path: /a, max_body: 0}", ""},
		{"{path: /a, max_body: 10 MB}", ""},
		{"{path: /a, max_body: 0x10}", `"0x10" is not a size such as 10MiB, 10MB or 1048576`},
		{"{path: /a, max_body: '1,000'}", `"1,000" is not a size such as 10MiB, 10MB or 1048576`},
		{"{path: /a, max_body: 9000000TiB}", `"9000000TiB" is not a size such as 10MiB, 10MB or 1048576`},
		{"{path: /a, max_body: 99999999999999999999999}", `"99999999999999999999999" is not a size such as 10MiB, 10MB or 1048576`},
		{"{path: /a, balance: random}", `balance "random" is neither round_robin nor least_in_flight`},
		{"{path: /a, health: {path: /livez}}", ""},
		{"{path: /a, health: {interval: 1s}}", "a health check has no path"},
		{"{path: /a, health: {path: livez}}", `path "livez" cannot be asked for: the path does not start with a slash`},
		{"{path: /a, health: {path: /livez, every: 1s}}", `unknown key "every" in a health check`},
		{"{path: /a, health: /livez}", "a health check must be a mapping of keys to values, not a single value"},
		{"{path: /a, set_request_headers: {x_snowgate_client: a}}", `header field "x_snowgate_client" cannot be changed: it is no name, or tells who asks, or concerns the connection`},
		{"{path: /a, remove_request_headers: [X-Forwarded-For]}", `header field "X-Forwarded-For" cannot be changed: it is no name, or tells who asks, or concerns the connection`},
		{"{path: /a, set_response_headers: {connection: close}}", `header field "connection" cannot be changed: it is no name, or tells who asks, or concerns the connection`},
		{"{path: /a, remove_response_headers: ['a b']}", `header field "a b" cannot be changed: it is no name, or tells who asks, or concerns the connection`},
		{"{path: /a, set_request_headers: {X-A: 1, x-a: 2}}", `header field "X-A" is given twice, first at 1:77`},
		{"{path: /a, set_request_headers: {X-A: ' 1'}}", `the value of header field "X-A" is too long, or has control characters or spaces around it`},
		{"{path: /a, set_request_headers: [X-A]}", "header fields must be a mapping of names to values, not a list"},
		{"{path: /a, add_prefix: v2}", `prefix "v2" cannot be added: the path does not start with a slash`},
		{"{path: /a, transport: standard}", ""},
		{"{path: /a, transport: direct}", ""},
		{"{path: /a, transport: http1}", `transport "http1" is neither direct nor standard`},
		{"{path: /a, preserve_host: false}", ""},
		{"{path: /a, preserve_host: true, host_header: b}", "host_header and preserve_host exclude each other"},
		{"{path: /a, host_header: 'a b'}", `host_header "a b" is not a host`},
		{"{path: /a, public: true, client_rate: 1/s}", "a public route knows no clients and can have no rate for them"},
		{"{path: /a, public: true, rate: 1/s}", ""},
		{"{path: /a, max_in_flight: -1}", `"-1" is not a number from 0 to 1000000`},
		{"{path: /a, max_in_flight: 1000001}", `"1000001" is not a number from 0 to 1000000`},
		{"{path: /a, audience: ''}", `audience "" is not an absolute URI without a fragment`},
	}
	for _, tt := range tests {
		route := strings.TrimSuffix(strings.TrimPrefix(tt.route, "{"), "}")
		_, err := parse("routes: [{name: n, upstreams: ['http://u'], " + route + "}]")
		got := ""
		if faults := faultsOf(err); len(faults) == 1 {
			got = faults[0].Message
		} else if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("route %s:\n got %s\nwant %s", tt.route, got, tt.want)
		}
	}
}

func TestSameHostAndPath(t *testing.T) {
	const two = "routes:\n- {name: a, host: %q, path: /x, upstreams: ['http://u']}\n- {name: b, host: %q, path: /x, upstreams: ['http://u']}\n"
	if _, err := parse(fmt.Sprintf(two, "a.example", "b.example")); err != nil {
		t.Errorf("one path on two hosts: %v", err)
	}
	if _, err := parse(fmt.Sprintf(two, "", "b.example")); err != nil {
		t.Errorf("one path on every host and on one: %v", err)
	}
	_, err := parse(fmt.Sprintf(two, "A.example.", "a.EXAMPLE"))
	if want := "f:3:38: another route has the same host and path, at 2:39"; err == nil || err.Error() != want {
		t.Errorf("one path on one host = %v, want %s", err, want)
	}
}

func TestNotes(t *testing.T) {
	got, err := parse("clients:\n- {id: a}\n- {id: b, secrets: [{id: s, sha256: " + strings.Repeat("0a", 32) + ", expires_at: 2026-06-01T12:00:00Z}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Fault{
		{Path: "f", Line: 2, Column: 3, Message: "a client without secrets cannot get tokens"},
		{Path: "f", Line: 3, Column: 115, Message: `secret "s" has expired`},
	}
	if diff := cmp.Diff(want, got.Notes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNotesOnWhatIsNotForwarded(t *testing.T) {
	got, err := parse("routes:\n- {name: a, path: /a, methods: [GET], scopes: [x], rate: 5/s, timeout: 10s}\n" +
		"- {name: b, path: /b, rate: 5/s, upstreams: [http://b]}\n")
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, note := range got.Notes {
		notes = append(notes, note.Error())
	}
	want := []string{
		"f:2:3: a route without upstreams serves forward-auth only: requests to it are 404",
		"f:2:58: rate is for requests that are forwarded: without upstreams it has no effect",
		"f:2:72: timeout is for requests that are forwarded: without upstreams it has no effect",
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	_, err := parse("clients:\n" + strings.Repeat("- x\n", 10_000))
	faults := faultsOf(err)
	if len(faults) != maxFaults+1 || faults[maxFaults].Message != "and more" {
		t.Errorf("%d faults, the last is %v", len(faults), faults[len(faults)-1])
	}
}

func TestListsAreBounded(t *testing.T) {
	_, err := parse("clients: [{id: a, scopes: [" + strings.Repeat("a,", maxElements+1) + "]}]")
	if want := "f:1:2028: scopes may have 1000 elements at most"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = parse("clients: [{id: a, secrets: [" + strings.Repeat("{},", clients.MaxSecrets+1) + "]}]")
	if want := "f:1:77: a client may have 16 secrets at most"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Wherever a secret is put by mistake, no fault and no note repeats it.
func TestNoFaultRepeatsASecret(t *testing.T) {
	content, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Load(content, &root); err != nil {
		t.Fatal(err)
	}
	secret, _ := clients.NewSecret()
	for _, canary := range []string{secret.Reveal(), "redis://:" + secret.Reveal()[8:40] + "@redis"} {
		tried := 0
		var walk func(n *yaml.Node)
		walk = func(n *yaml.Node) {
			for _, child := range n.Content {
				walk(child)
			}
			if n.Kind != yaml.ScalarNode {
				return
			}
			before := n.Value
			n.Value = canary
			text, err := yaml.Dump(&root)
			n.Value = before
			if err != nil {
				t.Fatal(err)
			}
			tried++
			file, err := parseFile("f", text, testRules)
			if out := fmt.Sprint(err, file.Notes); strings.Contains(out, secret.Reveal()[8:40]) {
				t.Errorf("instead of %q: %s", before, out)
			}
		}
		walk(&root)
		if tried < 50 {
			t.Errorf("only %d places were tried", tried)
		}
		for _, text := range []string{"clients: *%s", "clients: &%s [", "clients: !%s []", "%%%s\n---\n", "clients: '%s", "? %s"} {
			if _, err := parse(fmt.Sprintf(text, canary)); err == nil || strings.Contains(err.Error(), secret.Reveal()[8:40]) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, MaxFileSize+1); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ path, want string }{
		{filepath.Join(dir, "none"), "SNOWGATE_CONFIG: %q cannot be read: no such file or directory"},
		{dir, "SNOWGATE_CONFIG: %q is a directory; Docker makes one where a mounted file does not exist"},
		{"/dev/null", "SNOWGATE_CONFIG: %q is not a regular file"},
		{large, "SNOWGATE_CONFIG: %q is larger than 8388608 bytes"},
	}
	for _, tt := range tests {
		rules := testRules
		rules.subject = quotePath(tt.path)
		_, err := readFile(tt.path, rules)
		if want := fmt.Sprintf(tt.want, tt.path); err == nil || err.Error() != want {
			t.Errorf("readFile(%s) = %v, want %s", tt.path, err, want)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	for _, path := range []string{"testdata/good.yaml", "testdata/faults.yaml"} {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte("clients: &a [*a]"))
	f.Add([]byte("clients: []\n---\n"))
	f.Add([]byte("routes: [{name: a, path: /, upstreams: [http://a], max_body: 1e3}]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := parseFile("f", content, testRules)
		if err != nil {
			if faults := faultsOf(err); len(faults) == 0 || strings.Count(err.Error(), "\n") != len(faults)-1 {
				t.Fatalf("not one line per fault: %q", err)
			}
			return
		}
		var printed strings.Builder
		if err := (Config{File: file}).Print(&printed); err != nil {
			t.Fatalf("a valid file cannot be printed: %v", err)
		}
		for _, c := range file.Clients {
			again, err := parse("clients:\n" + ClientYAML(c))
			if err != nil || len(again.Clients) != 1 || again.Clients[0].ID != c.ID || len(again.Clients[0].Secrets) != len(c.Secrets) {
				t.Fatalf("ClientYAML does not read back: %v\n%s", err, ClientYAML(c))
			}
		}
	})
}

// One upstream has one health, whatever route asks.
func TestHealthIsCheckedInOneWay(t *testing.T) {
	const route = "\n  - {name: %s, path: /%[1]s, upstreams: [http://a], health: {path: %s}}"
	if _, err := parse("routes:" + fmt.Sprintf(route, "a", "/livez") + fmt.Sprintf(route, "b", "/livez")); err != nil {
		t.Error(err)
	}
	_, err := parse("routes:" + fmt.Sprintf(route, "a", "/livez") + fmt.Sprintf(route, "b", "/readyz"))
	if want := `f:3:56: the health of "http://a" is checked in another way at 2:56`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWebSocketNeedsHTTP1(t *testing.T) {
	if _, err := parse("routes: [{name: a, path: /, upstreams: ['h2c://a:50051']}]"); err != nil {
		t.Error(err)
	}
	_, err := parse("routes: [{name: a, path: /, upstreams: ['h2c://a:50051'], websocket: true}]")
	if want := "f:1:70: a WebSocket needs HTTP/1.1, and an upstream of the route is h2c"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestExamplesOpenNothing: no document holds a digest or a secret that would open a gateway.
func TestExamplesOpenNothing(t *testing.T) {
	usable := regexp.MustCompile(`\b[0-9a-f]{64}\b|\bsgs_[0-9A-Za-z]{49}\b|\bsgt_[0-9A-Za-z]{65,66}\b`)
	pages := 0
	for _, root := range []string{"../README.md", "../docs", "../deploy", "../docker-compose.yml"} {
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) == ".pgo" {
				return err
			}
			text, err := os.ReadFile(name)
			if found := usable.Find(text); found != nil {
				t.Errorf("%s holds %s: put <64 hex digits> there, or the like", name, found)
			}
			pages++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if pages < 30 {
		t.Errorf("%d pages were read", pages)
	}
	digest := sha256.Sum256([]byte("test"))
	_, err := parseFile("x.yaml", fmt.Appendf(nil, "clients:\n  - id: a\n    secrets: [{id: s1, sha256: %x}]\n", digest), testRules)
	if err == nil || !strings.Contains(err.Error(), "a word everybody knows") {
		t.Errorf("the digest of test: %v, want a refusal", err)
	}
}
