package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// enabled returns labels with the prefix, and snowgate.enable=true.
func enabled(pairs ...string) map[string]string {
	labels := map[string]string{"snowgate.enable": "true", "com.docker.compose.service": "x", "maintainer": "\x00\xff"}
	for i := 0; i < len(pairs); i += 2 {
		labels[LabelPrefix+pairs[i]] = pairs[i+1]
	}
	return labels
}

// Labels and file say the same: every key of a route, but for upstreams, makes the
// same route of both.
func TestLabelsSayWhatTheFileSays(t *testing.T) {
	const yaml = `
routes:
  - name: orders
    host: Orders.Example
    path: /orders
    upstreams: [http://orders:8080]
    strip_prefix: true
    methods: [GET, POST]
    scopes: [orders.read, orders.write]
    audience: https://orders.example
    mcp: true
    websocket: true
    pass_token: true
    timeout: 5s
    max_body: 1MiB
    allow_encoded_slash: true
    transport: direct
    balance: least_in_flight
    health: {path: /healthz, interval: 2s, timeout: 500ms}
    max_in_flight: 100
    rate: 500/s
    client_rate: 10/s
    add_prefix: /v2
    set_request_headers: {X-Env: prod, x.dotted: "a, b"}
    remove_request_headers: [Cookie]
    set_response_headers: {Server: snowgate}
    remove_response_headers: [X-Powered-By, Via]
    host_header: orders.internal
    cors:
      origins: [https://app.example, https://*.example.com]
      methods: [GET]
      request_headers: [Authorization, X-Trace]
      exposed_headers: [ETag]
      credentials: true
      max_age: 1h
`
	labels := enabled(
		"host", "Orders.Example", "path", "/orders", "strip_prefix", "true", "methods", "GET,POST",
		"scopes", "orders.read orders.write", "audience", "https://orders.example", "mcp", "true", "websocket", "TRUE", "pass_token", "true",
		"timeout", "5s", "max_body", "1MiB", "allow_encoded_slash", "true", "transport", "direct", "balance", "least_in_flight",
		"health.path", "/healthz", "health.interval", "2s", "health.timeout", "500ms", "max_in_flight", "100",
		"rate", "500/s", "client_rate", "10/s", "add_prefix", "/v2",
		"set_request_headers.X-Env", "prod", "set_request_headers.x.dotted", "a, b", "remove_request_headers", "Cookie",
		"set_response_headers.Server", "snowgate", "remove_response_headers", " X-Powered-By,  Via,", "host_header", "orders.internal",
		"cors.origins", "https://app.example, https://*.example.com", "cors.methods", "GET", "cors.request_headers", "Authorization X-Trace",
		"cors.exposed_headers", "ETag", "cors.credentials", "true", "cors.max_age", "1h",
	)
	file, err := parseFile("x.yaml", []byte(yaml), testRules)
	if err != nil {
		t.Fatal(err)
	}
	want := file.Routes[0]
	want.Upstreams = nil
	got, err := routeOfLabels("orders", labels)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-file +labels):\n%s", diff)
	}
	// All that a route of the file can say is said above, but for what excludes it: who
	// adds a key finds out here whether labels can say it.
	for field := range reflect.TypeFor[Route]().Fields() {
		known := field.Name == "Upstreams" || field.Name == "Public" || field.Name == "PreserveHost"
		if zero := reflect.ValueOf(got).FieldByIndex(field.Index).IsZero(); zero && !known {
			t.Errorf("the test says nothing about %s", field.Name)
		}
	}
}

func TestLabelsOfAContainer(t *testing.T) {
	tests := []struct {
		why    string
		labels map[string]string
		want   Labels
	}{
		{"no labels", nil, Labels{}},
		{"not enabled: the rest is not looked at", map[string]string{"snowgate.enable": "false", "snowgate.port": "x"}, Labels{}},
		{"without the label that enables it", map[string]string{"snowgate.path": "/x"}, Labels{}},
		{"as little as possible", enabled("path", "/x"), Labels{Enabled: true, Scheme: "http", Route: Route{Name: "service", Path: "/x"}}},
		{"a name of its own", enabled("path", "/x", "name", "other"), Labels{Enabled: true, Scheme: "http", Route: Route{Name: "other", Path: "/x"}}},
		{"where it is", enabled("path", "/x", "port", "65535", "network", "back", "scheme", "h2c"),
			Labels{Enabled: true, Scheme: "h2c", Port: 65535, Network: "back", Route: Route{Name: "service", Path: "/x"}}},
		// YAML reads this as null; as a label it is a name.
		{"a service called null", enabled("path", "/x", "name", "null"), Labels{Enabled: true, Scheme: "http", Route: Route{Name: "null", Path: "/x"}}},
	}
	for _, tt := range tests {
		got, err := ReadLabels("service", tt.labels)
		if err != nil {
			t.Errorf("%s: %v", tt.why, err)
			continue
		}
		got.Route = Route{Name: got.Route.Name, Path: got.Route.Path}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.why, diff)
		}
	}
}

func TestRefusedLabels(t *testing.T) {
	tests := []struct {
		why    string
		labels map[string]string
		want   string
	}{
		{"neither true nor false", map[string]string{"snowgate.enable": "yes"}, "snowgate.enable: enable must be true or false"},
		{"set to nothing", map[string]string{"snowgate.enable": ""}, "snowgate.enable: enable must be true or false"},
		{"no path", enabled(), "snowgate.path: a route has no path"},
		{"a typing error", enabled("path", "/x", "scope", "a"), `snowgate.scope: unknown key "scope" in a route; did you mean scopes?`},
		{"a typing error below a key", enabled("path", "/x", "health.path", "/", "health.intervall", "1s"),
			`snowgate.health.intervall: unknown key "intervall" in a health check; did you mean interval?`},
		{"a group that is none", enabled("path", "/x", "path.more", "/"), `snowgate.path.more: key "path" is given twice, first at snowgate.path`},
		{"a group that is a value", enabled("path", "/x", "health", "/"), "snowgate.health: a health check must be a mapping of keys to values, not a single value"},
		{"a port of 0", enabled("path", "/x", "port", "0"), `snowgate.port: port "0" is not a number from 1 to 65535`},
		{"a port out of range", enabled("path", "/x", "port", "65536"), `snowgate.port: port "65536" is not a number from 1 to 65535`},
		{"a negative port", enabled("path", "/x", "port", "-1"), `snowgate.port: port "-1" is not a number from 1 to 65535`},
		{"ports", enabled("path", "/x", "port", "80,81"), `snowgate.port: port "80,81" is not a number from 1 to 65535`},
		{"no port", enabled("path", "/x", "port", ""), "snowgate.port: port has no value"},
		{"https", enabled("path", "/x", "scheme", "https"), `snowgate.scheme: scheme "https" is neither http nor h2c; a certificate cannot be checked against the address of a container, so for https the file has to name the service`},
		{"a WebSocket over h2c", enabled("path", "/x", "scheme", "h2c", "websocket", "true"), "snowgate.scheme: a WebSocket needs HTTP/1.1, and the scheme is h2c"},
		{"another upstream", enabled("path", "/x", "upstreams", "http://169.254.169.254"), "snowgate.upstreams: the container itself is the upstream; a label cannot name another"},
		{"a path of the gateway", enabled("path", "/oauth2/token"), `snowgate.path: path "/oauth2/token" belongs to the gateway itself, which answers /oauth2`},
		{"readiness", enabled("path", "/readyz"), `snowgate.path: path "/readyz" belongs to the gateway itself, which answers /readyz`},
		{"no canonical path", enabled("path", "/a/../oauth2"), `snowgate.path: path "/a/../oauth2" is not a route's: the path has a dot segment`},
		{"a header that tells who asks", enabled("path", "/x", "set_request_headers.X-Snowgate-Client", "root"),
			`snowgate.set_request_headers.X-Snowgate-Client: header field "X-Snowgate-Client" cannot be changed: it is no name, or tells who asks, or concerns the connection`},
		{"one header twice", enabled("path", "/x", "set_request_headers.x-a", "1", "set_request_headers.X-A", "2"),
			`snowgate.set_request_headers.x-a: header field "X-A" is given twice, first at snowgate.set_request_headers.X-A`},
		{"a list with an element twice", enabled("path", "/x", "methods", "GET, GET"), `snowgate.methods: "GET" is listed twice`},
		{"scopes of a public route", enabled("path", "/x", "public", "true", "scopes", "a"), "snowgate.scopes: a public route asks for no token and so for no scopes"},
		{"a control character", enabled("path", "/x\n"), "snowgate.path: has a control character, or is not UTF-8"},
		{"no UTF-8", enabled("path", "/\xff"), "snowgate.path: has a control character, or is not UTF-8"},
		{"a megabyte", enabled("path", "/"+strings.Repeat("x", 1<<20)), "snowgate.path: the value has 1048577 bytes; 8192 are allowed"},
		{"a megabyte of name", enabled("path", "/x", strings.Repeat("x", 1<<20), ""),
			`"snowgate.` + strings.Repeat("x", 51) + `"…: the name has 1048585 bytes; 256 are allowed`},
		{"a secret by mistake", enabled("path", "/x", "scopes", "sgs_0123456789"), ""},
		{"a secret in a name", enabled("path", "/x", "sgs_0123456789", "1"), `[redacted]: unknown key [redacted] in a route`},
	}
	for _, tt := range tests {
		_, err := ReadLabels("service", tt.labels)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.why, err)
			}
			continue
		}
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %.300v\nwant %s", tt.why, err, tt.want)
		}
		var faults Faults
		if !errors.As(err, &faults) || faults[0].Path != "" {
			t.Errorf("%s: %#v is not a fault of a label", tt.why, err)
		}
	}
}

func TestTooManyLabels(t *testing.T) {
	labels := enabled("path", "/x")
	for i := range 1000 {
		labels[fmt.Sprintf("%sset_request_headers.X-%d", LabelPrefix, i)] = "x"
	}
	if _, err := ReadLabels("x", labels); err == nil || err.Error() != "snowgate.*: there are 1002 labels; 200 are allowed" {
		t.Errorf("1002 labels: %v", err)
	}
	clear(labels)
	for i := range 10_000 {
		labels[fmt.Sprintf("%s%d%s", LabelPrefix, i, strings.Repeat("x", 300))] = "x"
	}
	var faults Faults
	if _, err := ReadLabels("x", labels); !errors.As(err, &faults) || len(faults) > maxFaults {
		t.Errorf("10 000 faulty labels make %d faults, want %d at most", len(faults), maxFaults)
	}
}

// Whatever the labels are, reading them ends in faults that name labels and are of
// bounded length, or in a route that the file could hold as well.
func FuzzReadLabels(f *testing.F) {
	for _, seed := range []string{
		"path=/x", "path=/x\x01port=80\x01scopes=a b,c", "path=/x\x01health.path=/h\x01health.interval=1s", "path=/x\x01path.a=1",
		"path=/x\x01set_request_headers.A=b\x01set_request_headers.a=c", "path=\x01name=~\x01host=a b", "=\x01.=.", "path=/x\x01cors.origins=*",
		"upstreams=http://a\x01network=\x01scheme=h2c", "path=/x\x01max_body=1e9\x01rate=1/s\x01public=true",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		labels := map[string]string{}
		for line := range strings.SplitSeq(text, "\x01") {
			key, value, _ := strings.Cut(line, "=")
			labels[LabelPrefix+key] = value
		}
		labels["snowgate.enable"] = "true"
		before := maps.Clone(labels)
		read, err := ReadLabels("service", labels)
		if !maps.Equal(before, labels) {
			t.Error("the labels were changed")
		}
		var faults Faults
		switch {
		case err == nil:
			if r := read.Route; !validRouteName(r.Name) || !strings.HasPrefix(r.Path, "/") || len(r.Upstreams) != 0 || read.Scheme == "" {
				t.Errorf("%q: %+v", labels, read)
			}
		case !errors.As(err, &faults):
			t.Errorf("%q: %v are no faults", labels, err)
		}
		for _, fault := range faults {
			if fault.Variable == "" || len(fault.Error()) > 2000 || strings.ContainsAny(fault.Error(), "\n\x00") {
				t.Errorf("%q: fault %q", labels, fault.Error())
			}
		}
	})
}

// routeOfLabels returns the route that labels describe.
func routeOfLabels(name string, labels map[string]string) (Route, error) {
	read, err := ReadLabels(name, labels)
	return read.Route, err
}
