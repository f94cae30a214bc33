package cli

import (
	"context"
	"net"

	"snowgate/config"
	"snowgate/gateway"
)

func runServe(ctx context.Context, p *Process, args []string) error {
	if err := parseFlags(p, newFlags("serve"), args, 0); err != nil {
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
