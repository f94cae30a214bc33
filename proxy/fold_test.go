package proxy

import (
	"strings"
	"testing"
)

func TestLongNamesAreFoldedToo(t *testing.T) {
	for _, name := range []string{
		"X-Snowgate-" + strings.Repeat("long", 100), strings.Repeat("-", 1000) + "X-Snowgate-Client",
		"X" + strings.Repeat("_", 5000) + "Request" + strings.Repeat(".", 5000) + "Id",
	} {
		if maySend(name, true) {
			t.Errorf("%.40q… passes", name)
		}
	}
}

func TestCleaningDoesNotAllocate(t *testing.T) {
	names := []string{
		"Accept", "Accept-Encoding", "Content-Type", "Cookie", "User-Agent", "X-Custom-Header-With-A-Rather-Long-Name", "Connection",
	}
	if got := testing.AllocsPerRun(100, func() {
		for _, name := range names {
			maySend(name, false)
			mayRespond(name)
		}
	}); got != 0 {
		t.Errorf("mayAsk and mayAnswer = %v allocations, want 0", got)
	}
}
