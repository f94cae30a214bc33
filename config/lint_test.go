package config

import (
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
