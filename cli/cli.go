// Package cli has the commands of snowgate. Each command is a file that is called after it;
// [Process.Run] finds the one that a command line names.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"snowgate/config"
	"snowgate/gateway"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it was asked rightly and did not work
	exitUsage  = 2 // it was asked wrongly: flags, values, configuration
)

// Process is the environment of a command: its arguments, variables and streams. Tests make their
// own.
type Process struct {
	Version, Commit string   // set by the linker; empty: what Go recorded
	Environ         []string // NAME=value
	Stdin           io.Reader
	Stdout, Stderr  io.Writer

	faults []error // of variables that a command could not read; see environFault

	logs atomic.Pointer[gateway.Logs] // nil until the gateway logs
}

// command is one subcommand.
type command struct {
	name    string
	args    string // its arguments, for the help text
	summary string
	run     func(ctx context.Context, p *Process, args []string) error
}

// commands lists every subcommand in the order of the help text.
func commands() []command {
	return []command{
		{"serve", "", "run the gateway from environment and configuration file (the default)", runServe},
		{"demo", "[-listen ADDR]", "everything in one process on loopback, with lines to paste", runDemo},
		{"echo", "[-listen ADDR] [-name NAME] …", "demo upstream that answers with what it received", runEcho},
		{"docker-proxy", "[-listen ADDR] [-socket PATH]", "let the gateway list containers of Docker, and do nothing else with it", runDockerProxy},
		{"health", "[-for KIND] [-url URL]", "exit 0 if the gateway is ready, else 1", runHealth},
		{"client new", "-id ID [-scope \"a b\"] …", "make a client's id and secret, and the YAML to paste", runClientNew},
		{"client list", "[-source registry]", "list the clients of a running gateway", runClientList},
		{"client show", "ID", "show a client and when its secrets were used", runClientShow},
		{"client create", "ID [-scope \"a b\"] …", "make a client in the registry", runClientCreate},
		{"client rotate", "ID [-overlap 24h]", "give a client a new secret, and the old ones an end", runClientRotate},
		{"client disable", "ID", "stop a client and its live tokens", runClientDisable},
		{"client enable", "ID", "let a disabled client get tokens again", runClientEnable},
		{"client delete", "ID", "delete a client of the registry; its live tokens stop", runClientDelete},
		{"revoke", "-token ID | -client ID | …", "revoke one token, or many at a stroke", runRevoke},
		{"routes", "[-rejected]", "list the routes of a running gateway, and what is left out and why", runRoutes},
		{"key rotate", "[-reason TEXT]", "start a new tag key", runKeyRotate},
		{"key list", "", "tell when the tag keys start", runKeyList},
		{"ids free", "-worker N | -unused [-for 24h]", "free worker numbers that addresses keep (WORKER_ID=registry)", runIDsFree},
		{"ids rebase", "-epoch T | -layout L | …", "change epoch, layout or token key of an installation", runRebase},
		{"token get", "-client-id ID -secret-file FILE …", "print a token for a program; a file keeps it until it is due", runTokenGet},
		{"curl", "-client-id ID -secret-file FILE … -- ARGS", "run curl with a token", runCurl},
		{"token inspect", "[TOKEN-or-ID]", "decode a token or its id offline", runTokenInspect},
		{"config", "[-check [FILE] [-redis]]", "print the effective configuration, or only check it", runConfig},
		{"version", "", "print version, commit and Go version", runVersion},
	}
}

// usageError is a fault of the command line or the configuration: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errQuiet ends a command with exit code 1 when everything has been said.
var errQuiet = errors.New("")

// Run finds the command that args name, runs it and returns the exit code.
func (p *Process) Run(ctx context.Context, args []string) int {
	err := p.dispatch(ctx, args)
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	switch {
	case err == nil, errors.Is(err, errHelp):
		return exitOK
	case isUsage(err):
		p.complain(err)
		return exitUsage
	default:
		p.complain(err)
		return exitFailed
	}
}

// isUsage reports whether somebody has to change the command line or the configuration.
func isUsage(err error) bool {
	_, wrongCall := errors.AsType[usageError](err)
	_, wrongConfig := errors.AsType[*gateway.ConfigError](err)
	return wrongCall || wrongConfig
}

func (p *Process) complain(err error) {
	if text := err.Error(); text != "" {
		fmt.Fprintf(p.Stderr, "snowgate: %s\n", text)
	}
}

func (p *Process) dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		p.help(p.Stdout, "")
		return nil
	case "-v", "-version", "--version":
		args = []string{"version"}
	}
	for _, c := range commands() {
		if rest, ok := c.match(args); ok {
			return c.run(ctx, p, rest)
		}
	}
	return p.unknown(args)
}

// unknown says what is wrong with args, which begin with no command, or prints the commands of a
// group for -h.
func (p *Process) unknown(args []string) error {
	var groups, members []string
	for _, c := range commands() {
		group, member, _ := strings.Cut(c.name, " ")
		groups = append(groups, group)
		if group == args[0] {
			members = append(members, member)
		}
	}
	if len(members) == 0 {
		p.help(p.Stderr, "")
		return usageError{fmt.Errorf("unknown command %q%s", args[0], config.Suggest(args[0], "", groups))}
	}
	all := "needs one of: " + strings.Join(members, ", ")
	switch {
	case len(args) == 1:
		p.help(p.Stderr, args[0])
		return usageError{fmt.Errorf("%q %s", args[0], all)}
	case slices.Contains([]string{"help", "-h", "-help", "--help"}, args[1]):
		p.help(p.Stdout, args[0])
		return nil
	}
	return usageError{fmt.Errorf("unknown command %q%s; %q %s", args[0]+" "+args[1], config.Suggest(args[1], "", members), args[0], all)}
}

// match reports whether args begin with the words of the command's name, and
// returns the arguments behind them.
func (c command) match(args []string) ([]string, bool) {
	words := splitWords(c.name)
	if len(args) < len(words) {
		return nil, false
	}
	for i, word := range words {
		if args[i] != word {
			return nil, false
		}
	}
	return args[len(words):], true
}

// help prints the commands, or those of one group.
func (p *Process) help(w io.Writer, group string) {
	fmt.Fprint(w, "snowgate is a token gateway for services in Docker networks.\n\nUsage:\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		if group != "" && !strings.HasPrefix(c.name, group+" ") {
			continue
		}
		fmt.Fprintf(table, "  snowgate %s %s\t%s\n", c.name, c.args, c.summary)
	}
	_ = table.Flush()
	fmt.Fprint(w, "\n\"snowgate COMMAND -h\" tells the flags of a command. The gateway itself is\nconfigured by SNOWGATE_ variables; \"snowgate config\" prints what is in force.\n")
}
