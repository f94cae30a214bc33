// Package foreign_test runs programs that were written without snowgate in mind
// against the real gateway: a language for HTTP conversations (varnishtest), clients
// (curl, nghttp, h2load), and services (Go, nginx, Python, Node.js, gunicorn).
//
// SNOWGATE_TEST_LONG=1 makes its amounts those that "make foreign-full" is for.
package foreign_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

func TestMain(m *testing.M) {
	code := gatewaytest.Run(m)
	if err := writeReport(os.Getenv("SNOWGATE_FOREIGN_REPORT")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// amountOf chooses how much of something a test does: under the race detector,
// usually, and for "make foreign-full".
func amountOf(race, usual, full int) int {
	switch {
	case os.Getenv("SNOWGATE_TEST_LONG") == "1":
		return full
	case raceDetector:
		return race
	default:
		return usual
	}
}

// transports are the ways in which the gateway sends requests to services.
var transports = []string{"direct", "standard"}

// report holds rows of the table that "make foreign-full" writes.
var report struct {
	sync.Mutex
	rows []string
}

// record adds a row to the report; its cells are what, how much, in what time, with
// what result.
func record(t *testing.T, what, amount string, took time.Duration) {
	t.Helper()
	verdict := "all as expected"
	if t.Failed() {
		verdict = "FAILED"
	}
	t.Logf("%s: %s in %.1f s, %s", what, amount, took.Seconds(), verdict)
	report.Lock()
	defer report.Unlock()
	report.rows = append(report.rows, fmt.Sprintf("| %s | %s | %.1f s | %s |", what, amount, took.Seconds(), verdict))
}

// writeReport writes the report to path, if there is one.
func writeReport(path string) error {
	if path == "" {
		return nil
	}
	slices.Sort(report.rows)
	text := "# Foreign clients and services\n\nMade by `make foreign-full` on " + time.Now().UTC().Format("2 January 2006") +
		". Every body is compared with what was sent, byte by byte or by its\nSHA-256. Times are those of a small shared machine and no measure of speed.\n\n" +
		"| what | how much | took | result |\n|---|---|---|---|\n" + strings.Join(report.rows, "\n") + "\n"
	return os.WriteFile(path, []byte(text), 0o600)
}

func stderrOf(err error) string {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// lastPort is the last port that freePort looked at. It begins anywhere, because the tests of
// another clone may run at the same time.
var lastPort atomic.Int32

func init() { lastPort.Store(20000 + rand.Int32N(10000)) }

// freePort returns host:port of the loopback address on which nobody listens, and
// never the same twice. It is outside of the range from which the kernel takes ports
// for connections, so that none of them gets it before the program does that it is for.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(int(lastPort.Add(1))))
		if err == nil {
			_ = listener.Close()
			return listener.Addr().String()
		}
	}
	t.Fatalf("no free port up to %d", lastPort.Load())
	return ""
}

// startServer runs a program that listens on addr, and returns as soon as it does.
// The test ends it.
func startServer(t *testing.T, addr, program string, arguments ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, arguments...)
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = command.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s %q says:\n%s", program, arguments, text)
		}
	})
	gatewaytest.Eventually(t, 20*time.Second, program+" listens", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}
