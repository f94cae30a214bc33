package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"snowgate/config"
	"snowgate/internal/scope"
)

// errHelp ends a command that was asked for its flags only.
var errHelp = errors.New("help")

// newFlags returns an empty flag set for the command called name.
func newFlags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet("snowgate "+name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// parseFlags reads args into flags and reports all their faults together as one
// usageError. At most positional arguments may follow; they are in flags.Args.
// For -h it prints the flags and returns errHelp.
func parseFlags(p *Process, flags *flag.FlagSet, args []string, positional int) error {
	var faults []error
	err := flags.Parse(args)
	for ; err != nil; err = flags.Parse(flags.Args()) {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(p.Stdout)
			flags.Usage()
			return errHelp
		}
		if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
			err = fmt.Errorf("%w%s; \"%s -h\" tells the flags", err, suggestFlag(flags, name), flags.Name())
		}
		faults = append(faults, err)
	}
	if extra := flags.Args(); len(extra) > positional {
		faults = append(faults, fmt.Errorf("unexpected argument %q", extra[positional]))
	}
	if len(faults) > 0 {
		return usageError{fmt.Errorf("%s: %w", flags.Name(), errors.Join(faults...))}
	}
	return nil
}

// suggestFlag returns the hint at a flag that is spelt nearly like name, or nothing.
func suggestFlag(flags *flag.FlagSet, name string) string {
	var known []string
	flags.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	return config.Suggest(name, "-", known)
}

// parseScope reads the value of -scope.
func parseScope(text string) (list scope.List, err error) {
	if strings.Contains(text, ",") {
		parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		return list, fmt.Errorf("-scope %q: scopes are separated by spaces: -scope %q", text, strings.Join(parts, " "))
	}
	if list, err = scope.Parse(text); err != nil {
		err = fmt.Errorf("-scope: %w", err)
	}
	return list, err
}

// splitWords splits a command's name.
func splitWords(name string) []string { return strings.Fields(name) }
