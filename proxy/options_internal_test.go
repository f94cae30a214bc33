package proxy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestOptions: a field is named by Connection alike, whether the options are few or many.
func TestOptions(t *testing.T) {
	many := strings.Repeat("filler, ", 20)
	for _, lines := range [][]string{
		{"x-one, X-TWO"}, {"", "X-One,,x-two\t"}, {many + "X-One", " x-TWO "}, {many, "", ",x-one", many + "x-two"},
	} {
		options := optionsOf(lines)
		for name, want := range map[string]bool{"X-One": true, "X-Two": true, "X-Three": false, "X": false} {
			if got := options.name(name); got != want || names(lines, name) != want {
				t.Errorf("Connection %.40q names %s: %t, want %t", lines, name, got, want)
			}
		}
	}
	if optionsOf([]string{"keep-alive"}).name("Keep-Alive") {
		t.Error("what is usual names a field")
	}
}

// TestManyOptions: many options are put into a set once, instead of being looked through for every
// field, and a look at the set allocates nothing.
func TestManyOptions(t *testing.T) {
	var line strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&line, "o%d,", i)
	}
	options := optionsOf([]string{line.String()})
	if options.set == nil || len(options.lines) > 0 {
		t.Fatal("many options are looked through one by one")
	}
	if got := testing.AllocsPerRun(10, func() { runtime.KeepAlive(options.name("x-lower")) }); got > 0 {
		t.Errorf("one look at many options allocates %v times, want 0", got)
	}
}
