package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// build returns the version and the commit of this binary: what the linker was told, or what Go
// recorded; "dev" and "unknown" where nobody recorded them.
func (p *Process) build() (version, commit string) {
	v, c := p.Version, p.Commit
	if info, ok := debug.ReadBuildInfo(); ok {
		if v == "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
		for _, setting := range info.Settings {
			if c == "" && setting.Key == "vcs.revision" {
				c = setting.Value
			}
		}
	}
	if v == "" {
		v = "dev"
	}
	if c == "" {
		c = "unknown"
	}
	return v, c
}

func runVersion(_ context.Context, p *Process, args []string) error {
	if err := parseFlags(p, newFlags("version"), args, 0); err != nil {
		return err
	}
	v, c := p.build()
	_, err := fmt.Fprintf(p.Stdout, "snowgate %s (commit %s, %s)\n", v, c, runtime.Version())
	return err
}
