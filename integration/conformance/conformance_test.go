// Package conformance holds what the RFCs ask of an authorization server for
// machine clients and of the resource server in front of the services, as
// requests and responses in testdata: one case for each MUST and SHOULD, named by
// RFC and section. They run against the gateway's binary over real sockets.
//
// # The files
//
// A case begins with its name, RFC/section/what. Lines with # say what is asked.
// Lines with > are the request as it is sent, lines with < the response that must
// come; further pairs follow each other within the case. A line "* N" has the
// pair before it played N times.
//
//	### RFC6749/5.2/unsupported_grant_type
//	# The authorization grant type is not supported by the authorization server.
//	> POST /oauth2/token HTTP/1.1
//	> Authorization: Basic {basic worker}
//	> Content-Type: application/x-www-form-urlencoded
//	>
//	> grant_type=password
//	< HTTP/1.1 400
//	< Content-Type: application/json
//	<
//	< {"error": "unsupported_grant_type", "error_description": "{any}"}
//
// Left out of a request are Host, Connection and Content-Length, unless the case
// is about them: they are filled in. Of a response, what is not named is not
// looked at, except for the rules in invariants_test.go, which hold for every
// response; a body is compared as a whole. A line "@ NAME" sends the case to
// another gateway: see gateways. Placeholders are explained in expand_test.go
// and match_test.go.
package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Run(m)) }

// TestConformance plays every case.
func TestConformance(t *testing.T) {
	cases := load(t)
	running := start(t, slices.Sorted(maps.Keys(gateways))...)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g, ok := running[c.gateway]
			if !ok {
				t.Fatalf("there is no gateway %q", c.gateway)
			}
			p := player{t: t, gateway: g, tokens: make(map[string]string)}
			for _, e := range c.exchanges {
				for range e.times {
					p.play(e)
				}
			}
			if t.Failed() {
				t.Logf("%s", c.about)
			}
		})
	}
}

// wantCases is how many there are at least, so that none gets lost unseen.
const wantCases = 350

// sections must have a case each: everything of these RFCs that concerns a
// machine client, its authorization server or the resource server.
var sections = []string{
	"RFC6749/2.3", "RFC6749/2.3.1", "RFC6749/3.2", "RFC6749/3.2.1", "RFC6749/3.3", "RFC6749/4.4", "RFC6749/4.4.2",
	"RFC6749/4.4.3", "RFC6749/5.1", "RFC6749/5.2", "RFC6749/10.10", "RFC6749/A", "RFC6749/B",
	"RFC6750/2.1", "RFC6750/2.2", "RFC6750/2.3", "RFC6750/3", "RFC6750/3.1", "RFC6750/5.3",
	"RFC7009/2", "RFC7009/2.1", "RFC7009/2.2", "RFC7009/2.2.1",
	"RFC7662/2.1", "RFC7662/2.2", "RFC7662/2.3", "RFC7662/4",
	"RFC8414/2", "RFC8414/3", "RFC8414/3.1", "RFC8414/3.2", "RFC8414/3.3",
	"RFC8707/2", "RFC8707/2.2", "RFC9110/9.3.2", "RFC9110/11.6.1", "RFC9110/15.5.6",
	"RFC9700/2.3", "RFC9700/2.4", "RFC9700/2.5", "RFC9700/4.13",
	"RFC9728/2", "RFC9728/3", "RFC9728/3.1", "RFC9728/3.2", "RFC9728/3.3", "RFC9728/5.1",
}

var caseName = regexp.MustCompile(`^RFC[0-9]{4}/([0-9]+(\.[0-9]+)*|[AB])/[a-z0-9_]+$`)

// TestCases checks the collection itself: its size, its names, and that no
// section is forgotten.
func TestCases(t *testing.T) {
	cases := load(t)
	if len(cases) < wantCases {
		t.Errorf("there are %d cases, want %d at least", len(cases), wantCases)
	}
	seen := make(map[string]bool)
	covered := make(map[string]bool)
	for _, c := range cases {
		if !caseName.MatchString(c.name) {
			t.Errorf("case %q is not named RFC/section/what", c.name)
		}
		if seen[c.name] {
			t.Errorf("case %q is there twice", c.name)
		}
		seen[c.name] = true
		covered[c.name[:max(strings.LastIndexByte(c.name, '/'), 0)]] = true
		if c.about == "" || len(c.exchanges) == 0 {
			t.Errorf("case %q does not say what is asked, or asks nothing", c.name)
		}
	}
	for _, section := range sections {
		if !covered[section] {
			t.Errorf("no case for %s", section)
		}
	}
	t.Logf("%d cases, %d sections", len(cases), len(covered))
}

// load reads all the files.
func load(t *testing.T) []testCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.http"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	slices.Sort(files)
	var cases []testCase
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found, err := parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cases = append(cases, found...)
	}
	return cases
}
