package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"snowgate/internal/request/fields"
	"snowgate/proxy/http1"
)

// A field that the fast path lets pass must pass the rules, too.
func TestCommonFieldsMayPass(t *testing.T) {
	found := 0
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Cache-Control", "Content-Encoding", "Content-Type", "Date",
		"Etag", "Expires", "Last-Modified", "Server", "Set-Cookie", "User-Agent", "Vary",
		"Connection", "Content-Length", "Te", "Trailer", "Alt-Svc", "X-Request-Id", "Authorization", "Forwarded", "Cookie",
	} {
		if !common(name) {
			continue
		}
		found++
		if kind := fields.KindOf(name); kind != fields.Ordinary || hopByHop(name) || name == "Alt-Svc" {
			t.Errorf("%s is said to be common, and is of kind %d", name, kind)
		}
	}
	if found != 15 {
		t.Errorf("%d fields are common: those that this test does not know were not tested", found)
	}
}

// FuzzSortFields compares sortFields with the sort of the standard library.
func FuzzSortFields(f *testing.F) {
	f.Add("b a c a", 1)
	f.Add("Traceparent X-Request-Id User-Agent Accept", 1)
	f.Add("z y x", 20)
	f.Fuzz(func(t *testing.T, names string, repeat int) {
		var list []http1.Field
		for i, name := range strings.Fields(strings.Repeat(names+" ", min(max(repeat, 0), 40))) {
			list = append(list, http1.Field{Name: name, Value: fmt.Sprint(i)})
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, func(a, b http1.Field) int { return strings.Compare(a.Name, b.Name) })
		if sortFields(list); !slices.Equal(list, want) {
			t.Errorf("sorted: %v, want %v", list, want)
		}
	})
}
