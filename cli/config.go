package cli

import (
	"context"
	"fmt"

	"snowgate/config"
)

func runConfig(_ context.Context, p *Process, args []string) error {
	flags := newFlags("config")
	check := flags.Bool("check", false, "only check, and note what may not be meant; print nothing if all is well")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	cfg, err := config.Load(p.Environ)
	if err != nil {
		return usageError{err}
	}
	for _, note := range cfg.File.Notes {
		fmt.Fprintln(p.Stderr, note)
	}
	if *check {
		for _, note := range cfg.Lint() {
			fmt.Fprintln(p.Stderr, "note: "+note)
		}
		for _, note := range cfg.File.Lint() {
			fmt.Fprintln(p.Stderr, cfg.ConfigFile+": note: "+note)
		}
		return nil
	}
	return cfg.Print(p.Stdout)
}
