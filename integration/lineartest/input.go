package lineartest

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// Repeat returns about size bytes: piece again and again, between before and after.
func Repeat(before, piece, after string, size int) string {
	return before + strings.Repeat(piece, max(1, (size-len(before)-len(after))/len(piece))) + after
}

// Number returns about size bytes: format, which prints a number, with one number after the other,
// between before and after.
func Number(before, format, after string, size int) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < size-len(after); i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String() + after
}

// Strings returns a case of a function of one text, which [Repeat] makes.
func Strings(name, before, piece, after string, f func(string)) Case {
	return Case{Name: name, Prepare: func(size int) func() {
		text := Repeat(before, piece, after, size)
		return func() { f(text) }
	}}
}

// Numbers is [Strings] with a text that [Number] makes.
func Numbers(name, before, format, after string, f func(string)) Case {
	return Case{Name: name, Prepare: func(size int) func() {
		text := Number(before, format, after, size)
		return func() { f(text) }
	}}
}

// Keep is given results that nobody needs, so that they are found out.
func Keep(found bool) { kept.Store(found) }

var kept atomic.Bool
