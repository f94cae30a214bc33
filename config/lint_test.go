package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	tests := []struct {
		routes string
		want   []string // a part of each note
	}{
		{"{name: a, path: /a, scopes: [x]}", nil},
		{"{name: a, path: /a}", []string{`route "a" asks for a token, but for no scope`}},
		{"{name: a, path: /a, public: true}", nil},
		{"{name: all, path: /, public: true}, {name: a, path: /a, scopes: [x]}", []string{`route "all" is public and takes all paths that no other route has: what is forgotten at the protected route "a"`}},
		{"{name: all, path: /, host: h, public: true}, {name: a, path: /a, host: i, scopes: [x]}", nil}, // another host
		{"{name: all, path: /site, public: true}, {name: a, path: /a, scopes: [x]}", nil},
		{"{name: h, path: /a, host: h, scopes: [x]}, {name: a, path: /a/b, scopes: [x]}", []string{`route "a" is not reached on host h: there route "h"`}},
		{"{name: h, path: /, host: h, scopes: [x]}, {name: a, path: /a, scopes: [x]}", []string{`route "a" is not reached on host h: there route "h"`}},
		{"{name: h, path: /a, host: h, scopes: [x]}, {name: a, path: /ab, scopes: [x]}, {name: b, path: /, scopes: [x]}", nil},
	}
	for _, test := range tests {
		file, err := parse("routes: [" + test.routes + "]")
		if err != nil {
			t.Fatal(err)
		}
		notes := file.Lint()
		if len(notes) != len(test.want) {
			t.Errorf("%s: %q, want %d notes", test.routes, notes, len(test.want))
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(notes[i], want) {
				t.Errorf("%s: %q, want %q in it", test.routes, notes[i], want)
			}
		}
	}
}

func TestLintVariables(t *testing.T) {
	const narrow = "SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12"
	const want = "SNOWGATE_WORKER_ID: %s takes the last octet of the gateway's IPv4 address, and the worker field of SNOWGATE_ID_LAYOUT, " +
		"time:41,datacenter:2,worker:5,sequence:12, goes up to 31: at an address with a larger octet the gateway does not start"
	tests := []struct {
		environ []string
		source  string // that the note is about; empty: there is none
	}{
		{nil, ""},
		{[]string{narrow}, "auto"},
		{[]string{narrow, "SNOWGATE_WORKER_ID=ipv4"}, "ipv4"},
		{[]string{narrow, "SNOWGATE_WORKER_ID=lease"}, ""},
		{[]string{narrow, "SNOWGATE_WORKER_ID=31"}, ""},
		{[]string{"SNOWGATE_ID_LAYOUT=time:41,worker:8,sequence:12", "SNOWGATE_WORKER_ID=ipv4"}, ""},
	}
	for _, tt := range tests {
		cfg, err := load(tt.environ, testNow)
		if err != nil {
			t.Fatal(err)
		}
		notes := cfg.Lint()
		if tt.source == "" && len(notes) > 0 || tt.source != "" && (len(notes) != 1 || notes[0] != fmt.Sprintf(want, tt.source)) {
			t.Errorf("%v: %q", tt.environ, notes)
		}
	}
}
