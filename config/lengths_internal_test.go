package config

import (
	"strings"
	"testing"
	"time"
)

// The longest texts that are allowed, and those that are one longer.
func TestLengthsOfNames(t *testing.T) {
	prefix := func(text string) bool { return checkKeyPrefix(&Config{KeyPrefix: text}, time.Time{}) == "" }
	for name, test := range map[string]struct {
		valid func(string) bool
		most  int
	}{
		"key prefix": {prefix, 64},
		"route name": {validRouteName, 64},
		"method":     {validMethod, 32},
	} {
		for length, want := range map[int]bool{0: false, 1: true, 2: true, test.most: true, test.most + 1: false, 1 << 20: false} {
			if got := test.valid(strings.Repeat("A", length)); got != want {
				t.Errorf("%s of %d characters: %v, want %v", name, length, got, want)
			}
		}
	}
}
