package cli

import (
	"context"
	"fmt"
	"io"
	"net"

	"snowgate/config"
	"snowgate/gateway"
)

func runServe(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("serve")
	flags.Usage = func() { serveHelp(flags.Output()) }
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	cfg, err := config.Load(p.Environ)
	if err != nil {
		return usageError{err}
	}
	logs := p.openLogs(cfg)
	defer logs.Close()
	gateway.ManageMemory(logs)
	g, err := gateway.New(cfg, p.gatewayOptions(logs))
	if err != nil {
		return err
	}
	public, err := gateway.Listen(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	var admin *net.TCPListener
	if cfg.AdminListen != "" {
		if admin, err = gateway.Listen(ctx, cfg.AdminListen); err != nil {
			return err
		}
	}
	return g.Serve(ctx, public, admin)
}

// serveHelp prints the variables, in place of flags.
func serveHelp(w io.Writer) {
	fmt.Fprint(w, "Usage of snowgate serve:\nIt has no flags. These variables configure it; each may be given as NAME_FILE, the path of a file with the value.\n\n")
	for _, v := range config.Variables() {
		fmt.Fprintf(w, "  %s ", v.Name)
		if v.Default != "" {
			fmt.Fprintf(w, "(default %s)", v.Default)
		}
		fmt.Fprintf(w, "\n    \t%s\n", v.Meaning)
	}
}

func (p *Process) gatewayOptions(logs *gateway.Logs) gateway.Options {
	version, commit := p.build()
	return gateway.Options{Version: version, Commit: commit, Logs: logs}
}

// openLogs returns the logs that cfg asks for, written to standard error.
func (p *Process) openLogs(cfg config.Config) *gateway.Logs {
	logs := gateway.OpenLogs(p.Stderr, cfg)
	p.logs.Store(logs)
	return logs
}

// FlushLogs writes what has been logged and not written yet, before the process ends in a hurry.
// It may be called at any time.
func (p *Process) FlushLogs() {
	if logs := p.logs.Load(); logs != nil {
		logs.Close()
	}
}
