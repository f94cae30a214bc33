package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"snowgate/integration/lineartest"
)

// TestLinear: the work of what reads a configuration file, and of the faults that it tells, grows as
// the file does.
func TestLinear(t *testing.T) {
	file := func(text string) {
		if _, err := parseFile("f.yaml", []byte(text), fileRules{now: time.Now()}); err != nil {
			_ = err.Error()
		}
	}
	const client, route = "clients:\n  - id: a\n    secrets: []\n", "routes:\n  - name: a\n    path: /a\n"
	const digest = "3c9683017f9e4bf33d0fbedd26bf143fd72de9b9dd145441b75f0604047ea28e"
	lineartest.Run(t, []lineartest.Case{
		lineartest.Numbers("clients", "clients:\n", "  - {id: c%d, secrets: [{id: s1, sha256: "+digest+"}], scopes: [a, b]}\n", "", file),
		lineartest.Strings("one client many times", "clients:\n", "  - {id: c, secrets: [{id: s1, sha256: "+digest+"}]}\n", "", file),
		lineartest.Numbers("routes", "routes:\n", "  - {name: r%[1]d, path: /r/%[1]d, scopes: [a], upstreams: [http://a]}\n", "", file),
		lineartest.Numbers("routes beside a public one", "routes:\n  - {name: all, path: /, public: true, upstreams: [http://a]}\n",
			"  - {name: r%[1]d, path: /r/%[1]d, scopes: [a], upstreams: [http://a]}\n", "", file),
		lineartest.Strings("one route many times", "routes:\n", "  - {name: r, path: /r, upstreams: [http://a]}\n", "", file),
		lineartest.Numbers("scopes", client+"    scopes: [a", ", a%d", "]\n", file),
		lineartest.Strings("one scope many times", client+"    scopes: [a", ", a", "]\n", file),
		lineartest.Numbers("audiences", client+"    audiences: [https://a", ", https://a/%d", "]\n", file),
		lineartest.Numbers("upstreams", route+"    upstreams: [http://a", ", http://a%d", "]\n", file),
		lineartest.Numbers("unknown keys", route, "    a%d: b\n", "", file),
		lineartest.Strings("one key many times", route, "    host: b\n", "", file),
		lineartest.Strings("a long key", route+"    ", "path", ": a\n", file),
		lineartest.Strings("lists in lists", "clients: ", "[", "", file),
		lineartest.Strings("mappings in mappings", "clients: ", "{a: ", "", file),
		lineartest.Strings("items in items", "clients: ", "- ", "", file),
		lineartest.Strings("question marks", "", "? ", "", file),
		lineartest.Numbers("anchors", "clients: [", "&a%d b, ", "]", file),
		lineartest.Strings("aliases", "clients: [&a b", ", *a", "]", file),
		lineartest.Strings("merged keys", "clients: [&a {b: c}, {", "<<: *a, ", "}]", file),
		lineartest.Strings("tags", "clients: [", "!!str a, ", "]", file),
		lineartest.Strings("directives", "", "%TAG ! a\n", "--- a", file),
		lineartest.Strings("documents", "", "---\na\n", "", file),
		lineartest.Strings("comments", "clients: []\n", "# a\n", "", file),
		lineartest.Strings("comments in between", "clients:\n", "  # a\n  - {id: a, secrets: []}\n", "", file),
		lineartest.Strings("a long comment", "clients: [] #", "a", "\n", file),
		lineartest.Strings("empty lines", "clients: []", "\n", "", file),
		lineartest.Strings("spaces", "clients: []", " ", "", file),
		lineartest.Strings("a plain text of many lines", "clients: ", "a\n  ", "", file),
		lineartest.Strings("a quoted text of many lines", `clients: "`, "a\n  ", `"`, file),
		lineartest.Strings("escapes", `clients: "`, `\u0041`, `"`, file),
		lineartest.Strings("a block of text", "clients: |\n", "  a\n", "", file),
		lineartest.Strings("a folded text", "clients: >\n", "  a\n\n", "", file),
		lineartest.Strings("commas", "clients: [", ",", "]", file),
		lineartest.Strings("colons", "", ":", "", file),
		lineartest.Strings("colons and spaces", "", ": ", "", file),
		lineartest.Strings("brackets that close", "clients: ", "]", "", file),
		lineartest.Strings("text beyond ASCII", "clients: ", "ä", "", file),
	})
}

// TestLinearLabels: the same for the labels of a container. Lists are counted in elements, of which
// 1000 are allowed.
func TestLinearLabels(t *testing.T) {
	one := func(name, format string) func(size int) func() {
		return func(size int) func() {
			var list []string
			for i := range size {
				list = append(list, fmt.Sprintf(format, i))
			}
			return labelling(map[string]string{"snowgate." + name: strings.Join(list, ",")})
		}
	}
	many := func(name, value string) func(size int) func() {
		return func(size int) func() {
			labels := map[string]string{}
			for i := range size {
				labels[fmt.Sprintf(name, i)] = value
			}
			return labelling(labels)
		}
	}
	cases := []lineartest.Case{
		{Name: "unknown labels", Size: 50, Prepare: many("snowgate.a%d", "b")},
		{Name: "too many labels", Size: 1000, Prepare: many("snowgate.a%d", "b")},
		{Name: "labels of others", Size: 1000, Prepare: many("com.example.%d", "b")},
		{Name: "groups", Size: 50, Prepare: many("snowgate.a%d.b", "c")},
		{Name: "set headers", Size: 50, Prepare: many("snowgate.set_request_headers.X-A%d", "c")},
		{Name: "long names", Size: 50, Prepare: many("snowgate."+strings.Repeat("a", 200)+"%d", "c")},
		{Name: "a long value", Prepare: func(size int) func() {
			return labelling(map[string]string{"snowgate.path": "/" + strings.Repeat("a", min(size, maxLabelValue))})
		}},
	}
	for _, name := range labelLists {
		cases = append(cases,
			lineartest.Case{Name: name, Size: 250, Prepare: one(name, "A%d")},
			lineartest.Case{Name: name + " with one element many times", Size: 250, Prepare: one(name, "A")})
	}
	lineartest.Run(t, cases)
}

// labelling returns a call that reads labels of a route.
func labelling(labels map[string]string) func() {
	labels["snowgate.enable"] = "true"
	if labels["snowgate.path"] == "" {
		labels["snowgate.path"] = "/a"
	}
	return func() {
		if _, err := ReadLabels("a", labels); err != nil {
			_ = err.Error()
		}
	}
}
