package scope_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"snowgate/internal/scope"
)

func TestParse(t *testing.T) {
	tests := []struct {
		text string
		want scope.List
		err  error
	}{
		{"", "", nil},
		{"a", "a", nil},
		{"a b", "a b", nil},
		{"b a", "b a", nil},   // order is kept: the response reads as the request did
		{"a b a", "a b", nil}, // a set: repetitions mean nothing
		{"A a", "A a", nil},   // case-sensitive
		{"https://x/y#!$%&'()*+", "https://x/y#!$%&'()*+", nil},
		{" a", "", scope.ErrSyntax}, // §3.3 has no leading space
		{"a ", "", scope.ErrSyntax},
		{"a  b", "", scope.ErrSyntax},
		{"a\tb", "", scope.ErrSyntax}, // only %x20 separates
		{`a"b`, "", scope.ErrSyntax},  // would break the quoted WWW-Authenticate parameter
		{`a\b`, "", scope.ErrSyntax},
		{"é", "", scope.ErrSyntax},
		{"a\x00", "", scope.ErrSyntax},
		{"a\x7f", "", scope.ErrSyntax},
	}
	for _, tt := range tests {
		got, err := scope.Parse(tt.text)
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("Parse(%q) = %q, %v, want %q, %v", tt.text, got, err, tt.want, tt.err)
		}
	}
}

// A long list is parsed like a short one, and in a time that does not grow with its square.
func TestParseLongList(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("%x", i))
	}
	want := strings.Join(names, " ")
	for _, text := range []string{want, want + " " + want, want + " 0"} {
		if got, err := scope.Parse(text); err != nil || got.String() != want {
			t.Errorf("Parse of %d bytes = %d bytes, %v, want %d", len(text), len(got), err, len(want))
		}
	}
	if _, err := scope.Parse(want + " "); !errors.Is(err, scope.ErrSyntax) {
		t.Errorf("a long list that ends with a space: %v", err)
	}
}

func TestContains(t *testing.T) {
	tests := []struct {
		have, want scope.List
		ok         bool
	}{
		{"", "", true},
		{"a", "", true},
		{"", "a", false},
		{"a b", "b", true},
		{"a b", "b a", true},
		{"a b", "a c", false},
		{"ab", "a", false}, // whole tokens, never prefixes
		{"a.b", "a", false},
		{"a", "A", false},
	}
	for _, tt := range tests {
		if got := tt.have.Contains(tt.want); got != tt.ok {
			t.Errorf("List(%q).Contains(%q) = %v, want %v", tt.have, tt.want, got, tt.ok)
		}
	}
}

func TestWithout(t *testing.T) {
	for _, tt := range []struct{ have, name, want string }{
		{"a b c", "b", "a c"},
		{"a", "a", ""},
		{"", "a", ""},
		{"ab", "a", "ab"},
	} {
		if got := scope.List(tt.have).Without(tt.name); string(got) != tt.want {
			t.Errorf("List(%q).Without(%q) = %q, want %q", tt.have, tt.name, got, tt.want)
		}
	}
}

func TestContainsDoesNotAllocate(t *testing.T) {
	have, want := scope.List("orders.read orders.write billing.read"), scope.List("billing.read orders.read")
	if n := testing.AllocsPerRun(100, func() { _ = have.Contains(want) }); n != 0 {
		t.Errorf("Contains allocates %v times, want 0", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "a", "a b", "a  b", "a b a", "\"", "\x00", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := scope.Parse(text)
		if err != nil {
			return
		}
		again, err := scope.Parse(list.String())
		if err != nil || again != list {
			t.Fatalf("Parse(%q) = %q, not stable: %q, %v", text, list, again, err)
		}
		for name := range list.All {
			if !scope.ValidToken(name) || !list.Has(name) || strings.Count(" "+string(list)+" ", " "+name+" ") != 1 {
				t.Fatalf("Parse(%q) = %q holds %q wrongly", text, list, name)
			}
		}
	})
}

func ExampleList_Contains() {
	granted := scope.Of("orders.read", "orders.write")
	fmt.Println(granted.Contains("orders.read"), granted.Contains("orders"))
	// Output: true false
}

func TestParseDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = scope.Parse("orders.read orders.write billing.read") }); n != 0 {
		t.Errorf("Parse allocates %v times, want 0", n)
	}
}
