package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker (see the Dockerfile). Without that
// they come from the build information that Go records.
var (
	version = ""
	commit  = ""
)

// buildVersion returns the version and the commit of this binary, "dev" and
// "unknown" where nobody recorded them.
func buildVersion() (string, string) {
	v, c := version, commit
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

func runVersion(_ context.Context, p *process, args []string) error {
	if err := parseFlags(p, newFlags("version"), args, 0); err != nil {
		return err
	}
	v, c := buildVersion()
	_, err := fmt.Fprintf(p.stdout, "snowgate %s (commit %s, %s)\n", v, c, runtime.Version())
	return err
}
