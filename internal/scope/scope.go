// Package scope holds OAuth 2.0 scope lists (RFC 6749 §3.3): a set of
// case-sensitive scope-tokens, written as one string with single spaces.
//
// A [List] is kept as a string only. The token endpoint returns that string, the token record stores
// it and the upstream receives it, so a request never joins or splits scope-tokens.
package scope

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrSyntax says that a text is not a scope list of RFC 6749 §3.3.
var ErrSyntax = errors.New("scope: not a list of scope-tokens separated by single spaces")

// List is a set of scope-tokens separated by single spaces, in the order
// first named and without repetitions. The zero value is the empty set.
// A List is immutable and safe for concurrent use.
type List string

// few is the length in bytes up to which Parse compares each scope-token with those before it. For
// longer texts that would cost the square of the length, which a client chooses.
const few = 256

// Parse reads the scope parameter of RFC 6749 §3.3. Repeated tokens are
// folded into one; the empty text is the empty list.
// The error for anything else wraps [ErrSyntax]. Parse does not allocate for a text of the usual length
// without repetitions.
func Parse(text string) (List, error) {
	folds := len(text) > few
	for rest, more := text, text != ""; more; {
		before := List(text[:len(text)-len(rest)])
		var name string
		name, rest, more = strings.Cut(rest, " ")
		if !ValidToken(name) {
			return "", fmt.Errorf("%w: %q", ErrSyntax, name)
		}
		folds = folds || before.Has(name)
	}
	if folds {
		return Of(strings.Split(text, " ")...), nil
	}
	return List(text), nil
}

// Of returns the list of names. It panics if a name does not satisfy [ValidToken]; for names from
// outside, use [Parse].
func Of(names ...string) List {
	var b strings.Builder
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if !ValidToken(name) {
			panic(fmt.Sprintf("scope: invalid scope-token %q", name))
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name)
	}
	return List(b.String())
}

// ValidToken reports whether name is one scope-token:
// 1*( %x21 / %x23-5B / %x5D-7E ).
func ValidToken(name string) bool {
	for i := range len(name) {
		if c := name[i]; c < 0x21 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return name != ""
}

// All iterates over the scope-tokens of l in their order. It does not allocate.
func (l List) All(yield func(string) bool) {
	for rest := string(l); rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, " ")
		if !yield(name) {
			return
		}
	}
}

// Has reports whether name is in l. It does not allocate.
func (l List) Has(name string) bool {
	for have := range l.All {
		if have == name {
			return true
		}
	}
	return false
}

// Contains reports whether every scope-token of want is in l.
// The empty list is contained in every list. It does not allocate.
func (l List) Contains(want List) bool {
	for name := range want.All {
		if !l.Has(name) {
			return false
		}
	}
	return true
}

// Without returns l without name.
func (l List) Without(name string) List {
	return Of(slices.DeleteFunc(l.Names(), func(have string) bool { return have == name })...)
}

// Names returns the scope-tokens as a slice, nil for the empty list.
func (l List) Names() []string {
	return slices.Collect(l.All)
}

// String returns the list as RFC 6749 writes it.
func (l List) String() string { return string(l) }
