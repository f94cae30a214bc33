package lineartest

import (
	"strings"
	"testing"
)

var result string // so that nothing is optimised away

// TestJudge: what grows as its input does passes, what grows as the square of it does not.
func TestJudge(t *testing.T) {
	SkipUnderRace(t)
	tests := []struct {
		why   string
		f     func(text string)
		wrong bool
	}{
		{"looks at each byte once", func(text string) {
			for i := range len(text) {
				if text[i] == 'b' {
					result = text
				}
			}
		}, false},
		{"copies once", func(text string) { result = strings.ToUpper(text) }, false},
		{"looks at each byte for each byte", func(text string) {
			for i := range len(text) {
				if strings.Count(text, "b") > i {
					result = text
				}
			}
		}, true},
		{"copies for each few bytes", func(text string) {
			for range len(text) / 64 {
				result = strings.ToUpper(text)
			}
		}, true},
	}
	for _, test := range tests {
		one := Strings(test.why, "", "a", "", test.f)
		one.Size = 4 << 10
		var fault string
		for range tries {
			fault = one.check(t)
			if fault == "" {
				break
			}
		}
		if (fault != "") != test.wrong {
			t.Errorf("a function that %s is judged %q", test.why, fault)
		}
	}
}
