package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with the configuration: with a variable, or
// with a place in the file.
type Fault struct {
	// Variable is the full name of the variable, or of the label of a container;
	// empty for a fault of the file.
	Variable string
	// Path, Line and Column tell where in the file, counted from 1. Line is 0
	// if the fault is not at one place.
	Path         string
	Line, Column int
	// Message is one line and never holds a secret.
	Message string
}

// Error returns one line that starts with the name of the variable or with
// path:line:column.
func (f Fault) Error() string {
	switch {
	case f.Variable != "":
		return f.Variable + ": " + f.Message
	case f.Line == 0:
		return f.Path + ": " + f.Message
	default:
		return fmt.Sprintf("%s:%d:%d: %s", f.Path, f.Line, f.Column, f.Message)
	}
}

// Faults is everything that is wrong with a configuration: first the variables
// by name, then the places of the file from top to bottom.
type Faults []Fault

// Error returns one line per fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each [Fault] reachable for errors.As.
func (fs Faults) Unwrap() []error {
	errs := make([]error, len(fs))
	for i, f := range fs {
		errs[i] = f
	}
	return errs
}

// sorted returns fs in the order that [Faults] promises.
func (fs Faults) sorted() Faults {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(a.Path, b.Path), // variables have none and come first
			cmp.Compare(a.Variable, b.Variable),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return fs
}

// faultsOf returns the faults in err, which is nil or made of them.
func faultsOf(err error) Faults {
	var faults Faults
	errors.As(err, &faults)
	return faults
}

// quote returns a value from outside in the form for a fault: in quotes, on one line and of bounded
// length. It does not repeat text that looks like a secret or a token of the gateway, or that is
// long enough to be another secret.
func quote(text string) string { return quoteUpTo(60, text) }

// quotePath is quote for the path of a file, which is of use only in full.
func quotePath(path string) string { return quoteUpTo(4096, path) }

func quoteUpTo(most int, text string) string {
	switch {
	case looksSecret(text):
		return redacted
	case len(text) > most:
		return fmt.Sprintf("%q…", text[:most])
	default:
		return fmt.Sprintf("%q", text)
	}
}

// looksSecret reports whether text may hold a secret: a client secret, a token,
// or a URL with a password.
func looksSecret(text string) bool {
	if strings.Contains(text, "sgs_") || strings.Contains(text, "sgt_") {
		return true
	}
	_, authority, isURL := strings.Cut(text, "://")
	return isURL && strings.Contains(authority, "@")
}

// Suggest returns a "; did you mean …?" with that of known which is closest to
// name, or nothing if none is close. prefix goes before it.
func Suggest(name, prefix string, known []string) string {
	best, least := "", min(3, len(name)/3)
	for _, candidate := range known {
		if d := distance(name, candidate, least); d <= least && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
}

// distance is the number of insertions, deletions and replacements that make b
// of a (Levenshtein), or some number above most.
func distance(a, b string, most int) int {
	if max(len(a), len(b))-min(len(a), len(b)) > most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
