package cli

import (
	"context"
	"errors"
	"fmt"

	"snowgate/config"
	"snowgate/gateway"
)

func runConfig(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("config")
	check := flags.Bool("check", false, "only check, and note what may not be meant; print nothing if all is well")
	redis := flags.Bool("redis", false, "with -check: look into Redis, too, without writing there")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	if *redis && !*check {
		return usageError{errors.New("config: -redis has a use only with -check")}
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
		return checkAll(ctx, p, cfg, *redis)
	}
	return cfg.Print(p.Stdout)
}

// checkAll looks for everything that a start would find: without Redis, and, if asked to, there.
func checkAll(ctx context.Context, p *Process, cfg config.Config, redis bool) error {
	err := gateway.CheckStart(ctx, cfg)
	if !redis {
		return err
	}
	notes, redisErr := gateway.CheckRedis(ctx, cfg)
	for _, note := range notes {
		fmt.Fprintln(p.Stderr, "note: "+note)
	}
	return errors.Join(err, redisErr)
}
