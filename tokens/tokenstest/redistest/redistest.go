// Package redistest starts real Redis servers for tests, from the redis-server in PATH, and
// simulates faults such as crashes and hanging servers.
package redistest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is the time limit for what tests wait for.
const patience = 15 * time.Second

// Server is a Redis server of one test. Its methods fail the test on any error, and are not safe
// for concurrent use.
type Server struct {
	t        testing.TB
	program  []string // what to run
	dir      string
	port     string
	bus      string // port for the other nodes of a cluster
	password string
	auth     bool
	process  *exec.Cmd
	output   *bytes.Buffer
	frozen   bool
	ended    bool // by Stop or Kill

	environment []string      // added to the environment of the process
	clock       string        // the file that sets its clock
	stepped     time.Duration // what that says
}

// Start starts a server on a random port of 127.0.0.1, with a password, without persistence, and
// with the given arguments, for instance "--maxmemory", "2mb". It ends with the test.
//
// Without redis-server in PATH the test is skipped, or fails if
// SNOWGATE_TEST_REQUIRE=1.
func Start(t testing.TB, arguments ...string) *Server {
	t.Helper()
	return start(t, rand.Text(), arguments...)
}

// StartReplica starts a replica of primary with the same password, and waits until it is in sync.
func StartReplica(t testing.TB, primary *Server) *Server {
	t.Helper()
	s := start(t, primary.password, "--replicaof", "127.0.0.1 "+primary.port)
	s.Eventually("follow its primary", func() bool {
		return strings.Contains(s.Do("INFO", "replication"), "master_link_status:up")
	})
	return s
}

func start(t testing.TB, password string, arguments ...string) *Server {
	t.Helper()
	s := configure(t, password, arguments...)
	s.launch()
	return s
}

// configure returns a server that is not started yet.
func configure(t testing.TB, password string, arguments ...string) *Server {
	t.Helper()
	program := Find(t)
	s := &Server{t: t, dir: t.TempDir(), password: password, auth: true}
	s.port = freePort(t)
	s.program = append([]string{
		program, "--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "",
		"--requirepass", s.password, "--masterauth", s.password,
		"--unixsocket", s.socket(), "--daemonize", "no", "--repl-diskless-sync-delay", "0",
	}, arguments...)
	if slices.Contains(arguments, "--cluster-enabled") {
		s.bus = freePort(t) // the default, port + 10000, may be in use
		s.program = append(s.program, "--cluster-port", s.bus)
	}
	return s
}

// StartSentinel starts a Sentinel that watches master under the given name. It
// has no password.
func StartSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	program := Find(t)
	s := &Server{t: t, dir: t.TempDir()}
	s.port = freePort(t)
	config := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor %s 127.0.0.1 %s 1\n"+
		"sentinel auth-pass %s %s\nsentinel down-after-milliseconds %s 300\nsentinel failover-timeout %s 2000\n",
		s.port, s.dir, name, master.port, name, master.password, name, name)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.program = []string{program, config, "--sentinel"}
	s.launch()
	return s
}

// Find returns the path of redis-server. Without it the test is skipped, or
// fails if SNOWGATE_TEST_REQUIRE=1.
func Find(t testing.TB) string {
	t.Helper()
	return lookUp(t, "redis-server", "Debian: apt-get install redis-server")
}

// lookUp returns the path of a program.
func lookUp(t testing.TB, name, hint string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	if err == nil {
		return program
	}
	if os.Getenv("SNOWGATE_TEST_REQUIRE") == "1" {
		t.Fatalf("%s is not in PATH (%s), and SNOWGATE_TEST_REQUIRE=1", name, hint)
	}
	t.Skipf("SKIPPED, NOT TESTED: %s is not in PATH (%s)", name, hint)
	return ""
}

// The range of ports of servers. It is below the ports that Linux gives to outgoing connections, so
// that no connection takes the port of a server that restarts.
const firstPort, lastPort = 12_000, 32_000

// given holds the ports that tests of this process have used.
var given sync.Map

// freePort returns a free port that no other test of this process gets.
func freePort(t testing.TB) string {
	t.Helper()
	for range lastPort - firstPort {
		port := strconv.Itoa(firstPort + mathrand.IntN(lastPort-firstPort))
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		if listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// Password returns the server's password.
func (s *Server) Password() string { return s.password }

// SetPassword changes the password of the running server.
func (s *Server) SetPassword(password string) {
	s.t.Helper()
	s.Do("CONFIG", "SET", "requirepass", password)
	s.password = password
}

// URL returns redis://:password@host:port.
func (s *Server) URL() string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword("", s.password), Host: s.Addr()}).String()
}

// SocketURL returns unix://:password@/path. There is no socket if the path of the directory of the
// test is too long for one.
func (s *Server) SocketURL() string {
	return (&url.URL{Scheme: "unix", User: url.UserPassword("", s.password), Path: s.socket()}).String()
}

func (s *Server) socket() string {
	return filepath.Join(os.TempDir(), "redistest-"+s.port+".sock")
}

// launch starts the process and waits until it answers.
func (s *Server) launch() {
	s.t.Helper()
	s.LaunchOnly()
	s.WaitReady()
}

// LaunchOnly starts the process after Stop or Kill, and does not wait until the server replies.
func (s *Server) LaunchOnly() {
	s.t.Helper()
	s.output, s.ended = new(bytes.Buffer), false
	s.process = exec.Command(s.program[0], s.program[1:]...)
	s.process.Stdout, s.process.Stderr = s.output, s.output
	s.process.Env = append(os.Environ(), s.environment...)
	if err := s.process.Start(); err != nil {
		s.t.Fatalf("cannot start redis-server: %v", err)
	}
	process := s.process
	release := s.leash(process.Process.Pid)
	s.t.Cleanup(func() {
		release()
		_ = process.Process.Kill() // it has usually ended already
		_ = process.Wait()
		_ = os.Remove(s.socket())
	})
}

// leash starts a helper process that ends the server if the process of the test ends without its
// clean-up, by a panic or a timeout. The helper notices this when its standard input is closed.
// release ends only the helper.
func (s *Server) leash(pid int) (release func()) {
	s.t.Helper()
	helper := exec.Command("sh", "-c", `read _; kill -9 "$0"`, strconv.Itoa(pid))
	input, err := helper.StdinPipe()
	if err == nil {
		err = helper.Start()
	}
	if err != nil {
		s.t.Fatalf("cannot watch over redis-server: %v", err)
	}
	return func() {
		_ = helper.Process.Kill()
		_ = helper.Wait()
		_ = input.Close()
	}
}

// WaitReady returns when the server answers PING and is done loading.
func (s *Server) WaitReady() {
	s.t.Helper()
	s.Eventually("answer PING", func() bool {
		_, err := s.TryDo("PING")
		return err == nil
	})
}

// Eventually fails the test unless done becomes true in time.
func (s *Server) Eventually(what string, done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("redis-server on port %s did not %s within %s", s.port, what, patience)
		case <-ticker.C:
		}
	}
}

// Stop ends the process with SIGTERM.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the process with SIGKILL.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) {
	s.t.Helper()
	s.Resume()
	s.signal(signal)
	_ = s.process.Wait() // the exit status is that of the signal
	s.ended = true
}

// Running reports whether the server was started, and not stopped or killed since.
func (s *Server) Running() bool { return s.process != nil && !s.ended }

// Restart starts the process again, after Stop or Kill, on the same address and
// without any data unless persistence was asked for, and waits until it answers.
func (s *Server) Restart() { s.t.Helper(); s.launch() }

// AddArguments adds arguments for the next start of redis-server.
func (s *Server) AddArguments(arguments ...string) { s.program = append(s.program, arguments...) }

// Freeze suspends the process: connections stay open, but get no replies.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP); s.frozen = true }

// Resume continues a suspended process.
func (s *Server) Resume() {
	if s.frozen {
		s.signal(syscall.SIGCONT)
		s.frozen = false
	}
}

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		s.t.Fatalf("cannot send %v to redis-server: %v", signal, err)
	}
}

// FlushAll removes all keys.
func (s *Server) FlushAll() { s.t.Helper(); s.Do("FLUSHALL") }

// Do sends a command on a connection of its own and returns the reply, with the elements of arrays
// as lines. An error reply fails the test.
func (s *Server) Do(command ...string) string {
	s.t.Helper()
	answer, err := s.TryDo(command...)
	if err != nil {
		s.t.Fatalf("redis-server: %s: %v", command[0], err)
	}
	return answer
}

// Info returns the value of a numeric field of INFO. A field that is missing fails the test.
func (s *Server) Info(section, field string) float64 {
	s.t.Helper()
	for line := range strings.Lines(s.Do("INFO", section)) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				s.t.Fatalf("redis-server: INFO %s: %s: %v", section, field, err)
			}
			return value
		}
	}
	s.t.Fatalf("redis-server: INFO %s has no %s", section, field)
	return 0
}

// TryDo is Do with the error returned.
func (s *Server) TryDo(command ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	c := newConn(conn)
	if s.auth {
		if _, err := c.do("AUTH", s.password); err != nil {
			return "", err
		}
	}
	return c.do(command...)
}

// errServer wraps an error reply of Redis.
var errServer = errors.New("the server says")
