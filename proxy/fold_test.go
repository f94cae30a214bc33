package proxy

import (
	"net/http"
	"strings"
	"testing"
)

func TestLongNamesAreFoldedToo(t *testing.T) {
	for _, name := range []string{
		"X-Snowgate-" + strings.Repeat("long", 100), strings.Repeat("-", 1000) + "X-Snowgate-Client",
		"X" + strings.Repeat("_", 5000) + "Request" + strings.Repeat(".", 5000) + "Id",
	} {
		h := http.Header{name: {"forged"}}
		if cleanRequest(h, true); len(h) > 0 {
			t.Errorf("%.40q… passes", name)
		}
	}
}

func TestCleaningDoesNotAllocate(t *testing.T) {
	h := http.Header{
		"Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Content-Type": {"text/plain"}, "Cookie": {"a=b"},
		"User-Agent": {"test"}, "X-Custom-Header-With-A-Rather-Long-Name": {"x"},
	}
	if got := testing.AllocsPerRun(100, func() { cleanRequest(h, false) }); got != 0 {
		t.Errorf("cleanRequest = %v allocations, want 0", got)
	}
}
