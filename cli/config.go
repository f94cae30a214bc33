package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"snowgate/config"
	"snowgate/gateway"
)

func runConfig(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("config")
	check := flags.Bool("check", false, "only check, and warn of settings that are probably mistakes; a FILE behind it is checked in place of that of SNOWGATE_CONFIG")
	redis := flags.Bool("redis", false, "with -check: look into Redis, too, without writing there")
	if err := parseFlags(p, flags, args, len(args)); err != nil {
		return err
	}
	environ := p.Environ
	if flags.NArg() > 0 {
		file := flags.Arg(0)
		if !*check {
			return usageError{fmt.Errorf("config: a file is only checked: config -check %s", file)}
		}
		if err := parseFlags(p, flags, flags.Args()[1:], 0); err != nil {
			return err
		}
		environ = append(withoutVariable(environ, config.Prefix+"CONFIG"), config.Prefix+"CONFIG="+file)
	}
	if *redis && !*check {
		return usageError{errors.New("config: -redis has a use only with -check")}
	}
	cfg, err := config.Load(environ)
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
		if err := checkAll(ctx, p, cfg, *redis); err != nil {
			return err
		}
		fmt.Fprintln(p.Stdout, "ok: "+checked(cfg, *redis))
		return nil
	}
	return cfg.Print(p.Stdout)
}

// checked names what was looked at and found to be right.
func checked(cfg config.Config, redis bool) string {
	text := "the variables"
	if redis {
		text += ", Redis"
	}
	if cfg.ConfigFile == "" {
		return text + "; " + config.Prefix + "CONFIG is not set"
	}
	return text + ", " + cfg.ConfigFile
}

// withoutVariable returns environ without the variable of that name, and without its NAME_FILE.
func withoutVariable(environ []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, name+"=") || strings.HasPrefix(entry, name+"_FILE=")
	})
}

// checkAll looks for every fault that a start would find, and in Redis only if that was asked for.
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
