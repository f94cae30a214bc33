package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
)

// exitStatus is the exit code of a program that a command ran; the program has said why.
type exitStatus int

// Error returns nothing to print.
func (exitStatus) Error() string { return "" }

// runCurl runs curl with a token. The token travels through a pipe: arguments and environment of a
// process can be read by others.
func runCurl(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("curl")
	wanted := addTokenFlags(p, flags)
	if err := parseFlags(p, flags, args, math.MaxInt); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return usageError{errors.New("curl: needs the arguments for curl behind its own flags, like -- -i http://127.0.0.1:8080/orders/1")}
	}
	token, err := wanted.get(ctx, p)
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	_, err = fmt.Fprintf(write, "header = \"Authorization: Bearer %s\"\n", token) // fits into the pipe
	if err = errors.Join(err, write.Close()); err != nil {
		return err
	}
	curl := exec.CommandContext(ctx, "curl", append([]string{"--config", "/dev/fd/3"}, flags.Args()...)...)
	curl.ExtraFiles = []*os.File{read}
	curl.Env, curl.Stdin, curl.Stdout, curl.Stderr = p.Environ, p.Stdin, p.Stdout, p.Stderr
	err = curl.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() > 0 {
		return exitStatus(ended.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("running curl: %w", err)
	}
	return nil
}
