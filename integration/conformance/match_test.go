package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"snowgate/integration/gatewaytest"
)

// matchers are what the expected response may hold in place of a value. In JSON
// they are written as strings, also for what is none. "..." as the name of a
// member stands for any further ones.
//
//	{any}       anything but nothing
//	{integer}   a whole number greater than 0
//	{minted}    an access token
//	{absent}    of a header field: it is not there
var matchers = map[string]func(value any) bool{
	"any": func(value any) bool { return value != nil && value != "" },
	"integer": func(value any) bool {
		number, ok := value.(float64)
		return ok && number > 0 && number == math.Trunc(number)
	},
	"minted": func(value any) bool {
		text, ok := value.(string)
		return ok && tokenSyntax.MatchString(text)
	},
	"absent": func(value any) bool { return value == nil },
}

var tokenSyntax = regexp.MustCompile(`^sgt_[0-9A-Za-z]{11}_[0-9A-Za-z]{54}$`)

// play sends one request and compares the response.
func (p *player) play(e exchange) {
	p.t.Helper()
	request := p.wire(e.request)
	got := p.gateway.Exchange(request)
	lines, body, hasBody := split(e.response)
	if status := strings.TrimPrefix(lines[0], "HTTP/1.1 "); strconv.Itoa(got.StatusCode) != status {
		p.t.Errorf("status = %d, want %s\n%s", got.StatusCode, status, got.Body)
	}
	p.compareHeader(got, lines[1:])
	if hasBody {
		p.compareBody(got.Body, body)
	}
	checkInvariants(p.t, request, got)
	if p.t.Failed() {
		p.t.Logf("request:\n%s\nanswer: %d %v\n%s", censored(request), got.StatusCode, got.Header, censored(got.Body))
	}
}

// compareHeader wants the named fields with exactly the named values.
func (p *player) compareHeader(got gatewaytest.Response, lines []string) {
	p.t.Helper()
	want := make(map[string][]string)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		want[name] = append(want[name], p.expand(strings.TrimSpace(value)))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		values := got.Header.Values(name)
		switch {
		case slices.Equal(want[name], []string{"{absent}"}):
			if len(values) > 0 {
				p.t.Errorf("%s = %q, want none", name, values)
			}
		case slices.Equal(want[name], []string{"{any}"}):
			if len(values) != 1 || values[0] == "" {
				p.t.Errorf("%s = %q, want one", name, values)
			}
		case !slices.Equal(values, want[name]):
			p.t.Errorf("%s = %q, want %q", name, values, want[name])
		}
	}
}

// compareBody compares JSON by its values, and anything else to the byte.
func (p *player) compareBody(got, want string) {
	p.t.Helper()
	want = p.expand(want)
	if !strings.HasPrefix(want, "{") {
		if got != want {
			p.t.Errorf("body = %q, want %q", got, want)
		}
		return
	}
	var wanted, found any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		p.t.Fatalf("the wanted body is not JSON: %v\n%s", err, want)
	}
	if err := json.Unmarshal([]byte(got), &found); err != nil {
		p.t.Errorf("the body is not JSON: %v\n%s", err, got)
		return
	}
	for _, fault := range compare("body", found, wanted) {
		p.t.Error(fault)
	}
}

// compare returns what is different in two JSON values.
func compare(where string, got, want any) []string {
	switch want := want.(type) {
	case map[string]any:
		return compareObject(where, got, want)
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return []string{fmt.Sprintf("%s = %v, want %v", where, got, want)}
		}
		var faults []string
		for i := range want {
			faults = append(faults, compare(fmt.Sprintf("%s[%d]", where, i), list[i], want[i])...)
		}
		return faults
	case string:
		if name, ok := strings.CutPrefix(want, "{"); ok {
			if match := matchers[strings.TrimSuffix(name, "}")]; match != nil {
				if !match(got) {
					return []string{fmt.Sprintf("%s = %v, want %s", where, got, want)}
				}
				return nil
			}
		}
	}
	if got != want {
		return []string{fmt.Sprintf("%s = %#v, want %#v", where, got, want)}
	}
	return nil
}

func compareObject(where string, got any, want map[string]any) []string {
	object, ok := got.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("%s = %v, want an object", where, got)}
	}
	var faults []string
	_, more := want["..."]
	for name := range object {
		if _, named := want[name]; !named && !more {
			faults = append(faults, fmt.Sprintf("%s.%s = %v, want none", where, name, object[name]))
		}
	}
	for name, value := range want {
		if name != "..." {
			faults = append(faults, compare(where+"."+name, object[name], value)...)
		}
	}
	return faults
}

// censored cuts tokens and secrets, which are none of the log's business even
// where they are good for nothing.
func censored(text string) string {
	return secrets.ReplaceAllString(text, "$1$2…")
}

var secrets = regexp.MustCompile(`(sg[ts]_[0-9A-Za-z]{0,11})[0-9A-Za-z_]*|(Basic )[0-9A-Za-z+/]{40,}`)
