// Snowgate is a token gateway for services in Docker networks: client programs
// trade their credentials for an opaque access token, callers show it as a
// bearer token, and the gateway checks it and proxies to the protected services.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"snowgate/cli"
)

// version and commit are set by the linker (see the Dockerfile).
var version, commit string

func main() {
	// The reader of the output may go away, as in "snowgate serve 2>&1 | head -n1": the write then
	// fails, and does not end the process.
	signal.Ignore(syscall.SIGPIPE)
	p := &cli.Process{Version: version, Commit: commit, Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(p.Run(untilSignal(p.FlushLogs), os.Args[1:]))
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM,
// which asks for an orderly end. The second one ends the process at once, after
// a call of last.
func untilSignal(last func()) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		last()
		os.Exit(1)
	}()
	return ctx
}
