package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
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

// splitWords splits a command's name.
func splitWords(name string) []string { return strings.Fields(name) }
