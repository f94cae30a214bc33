package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCORS(t *testing.T) {
	const routes = "routes: [{name: n, path: /a, upstreams: ['http://u'], "
	const missing = `cors allows POST, which the methods of the route do not`
	tests := []struct {
		route string // behind upstreams
		want  string // the fault, empty if it is fine
	}{
		{"cors: {origins: ['*']}", ""},
		{"cors: {origins: [https://a.example], methods: [GET, PURGE], request_headers: ['*'], exposed_headers: [etag], credentials: true, max_age: 24h}", ""},
		{"cors: {origins: ['*'], exposed_headers: ['*']}", ""},
		{"cors: {origins: [https://a.example], exposed_headers: ['*'], credentials: true}", `with credentials, browsers take "*" in exposed_headers for the name of a field; name those that are meant`},
		{"methods: [GET, POST], cors: {origins: ['*'], methods: [POST]}", ""},
		{"cors: true", "cors must be a mapping of keys to values, not a single value"},
		{"cors:", "cors must be a mapping of keys to values, not nothing"},
		{"cors: {}", "cors has no origins"},
		{"cors: {origins: []}", "cors needs at least one origin; leave it out to allow none"},
		{"cors: {origins: }", "cors needs at least one origin; leave it out to allow none"},
		{"cors: {origins: '*'}", "origins must be a list, not a single value"},
		{"cors: {origins: [https://a.example/]}", `origin "https://a.example/" has more than scheme, host and port: no origin ends in a slash or has a path`},
		{"cors: {origins: ['null']}", `origin "null" is an origin that any page can give itself`},
		{"cors: {origins: [https://a.example, https://a.example]}", `"https://a.example" is listed twice`},
		{"cors: {origins: [https://a.example, '*']}", `origins has "*", which is every origin, and others beside it`},
		{"cors: {origins: ['*'], credentials: true}", `cors allows credentials to every origin "*": any page could act for whoever visits it; name the origins`},
		{"cors: {origins: ['*'], methods: [get]}", `"get" is not a method in capitals, other than CONNECT and TRACE`},
		{"methods: [GET], cors: {origins: ['*'], methods: [GET, POST]}", missing},
		{"cors: {origins: ['*'], request_headers: ['a b']}", `"a b" is not the name of a header field`},
		{"cors: {origins: ['*'], request_headers: ['*', a]}", `request_headers has "*", which is every header field, and others beside it`},
		{"cors: {origins: ['*'], exposed_headers: [a, '*']}", `exposed_headers has "*", which is every header field, and others beside it`},
		{"cors: {origins: ['*'], max_age: 0s}", `"0s" is not a positive duration`},
		{"cors: {origins: ['*'], max_age: 1500ms}", "max_age 1.5s is not a number of whole seconds up to 24h0m0s"},
		{"cors: {origins: ['*'], max_age: 25h}", "max_age 25h0m0s is not a number of whole seconds up to 24h0m0s"},
		{"cors: {origins: ['*'], origin: a}", `unknown key "origin" in cors; did you mean origins?`},
		{"set_response_headers: {access-control-allow-origin: a}, cors: {origins: ['*']}", "cors says Access-Control-Allow-Origin, and so does set_response_headers"},
	}
	for _, test := range tests {
		text := routes + test.route + "}]"
		if strings.HasSuffix(test.route, ":") {
			text = "routes:\n- name: n\n  path: /a\n  upstreams: ['http://u']\n  " + test.route
		}
		_, err := parse(text)
		got := ""
		if faults := faultsOf(err); len(faults) == 1 {
			got = faults[0].Message
		} else if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.route, got, test.want)
		}
	}
	_, err := parse("routes: [{name: n, path: /a, cors: {origins: ['*']}}]")
	if err == nil || !strings.HasSuffix(err.Error(), "cors has no use on a route without upstreams: what another proxy forwards is not answered here") {
		t.Errorf("without upstreams: %v", err)
	}
}

// TestCORSDefaults: the methods are those of the route.
func TestCORSDefaults(t *testing.T) {
	for route, methods := range map[string][]string{
		"methods: [GET, PURGE], ": {"GET", "PURGE"},
		"":                        {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"},
	} {
		file, err := parse("routes: [{name: n, path: /a, upstreams: ['http://u'], " + route + "cors: {origins: [https://a.example]}}]")
		if err != nil {
			t.Fatal(err)
		}
		want := CORS{
			Origins: []string{"https://a.example"}, Methods: methods,
			RequestHeaders: []string{"Authorization", "Content-Type"}, MaxAge: 10 * time.Minute,
		}
		if diff := cmp.Diff(want, file.Routes[0].CORS); diff != "" {
			t.Errorf("%q (-want +got):\n%s", route, diff)
		}
	}
}

func TestLintCORS(t *testing.T) {
	tests := []struct{ route, want string }{
		{"scopes: [x], cors: {origins: ['*']}", ""},
		{"scopes: [x], cors: {origins: ['*'], request_headers: ['*']}", ""},
		{"scopes: [x], cors: {origins: ['*'], request_headers: [X-A]}", "does not let browsers send Authorization"},
		{"public: true, cors: {origins: ['*'], request_headers: [X-A]}", ""},
		{"public: true, cors: {origins: ['https://*.com']}", "every site below the top-level domain com"},
		{"public: true, cors: {origins: ['https://*.a.example', 'http://*.localhost:3000']}", ""},
		{"public: true, cors: {origins: ['http://a.example']}", ""},
		{"public: true, cors: {origins: ['http://a.example'], credentials: true}", "allows credentials to http://a.example"},
		{"public: true, cors: {origins: ['http://localhost:3000', 'http://127.0.0.1', 'http://[::1]:1'], credentials: true}", ""},
	}
	for _, test := range tests {
		file, err := parse("routes: [{name: n, path: /a, upstreams: ['http://u'], " + test.route + "}]")
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(file.Lint(), "\n")
		if test.want == "" && notes != "" || !strings.Contains(notes, test.want) {
			t.Errorf("%s: %q, want %q", test.route, notes, test.want)
		}
	}
}
