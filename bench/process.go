package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The two processors. The gateway under test has one for itself; the load
// generator, the upstream, Redis and this program share the other.
const (
	gatewayCore = 0
	loadCore    = 1
)

// packages names the Debian package of each program.
var packages = map[string]string{
	"nginx":        "nginx-light, libnginx-mod-http-lua and lua-nginx-redis",
	"haproxy":      "haproxy",
	"caddy":        "caddy",
	"wrk":          "wrk",
	"h2load":       "nghttp2-client",
	"redis-server": "redis-server",
	"go":           "golang",
}

// find returns the path of a program, or an error that names its package.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !filepath.IsAbs(name) {
		if sbin := filepath.Join("/usr/sbin", name); exists(sbin) {
			return sbin, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s is not installed: it comes with the Debian package %s (bench/install gets all of them)", name, packages[name])
	}
	return path, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// program says how a process is started.
type program struct {
	path string
	args []string
	env  []string // nil: PATH only
	core int
	log  io.Writer // nil: thrown away
}

// process is a running program with a process group of its own, which its
// children belong to.
type process struct {
	program
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	listens  string // of a Redis for gateways: its address
	giveBack func() // for the next gateway; nil: it is of no more use
}

// start starts p on its processor. The process dies with this program, whatever
// that dies of.
func start(p program) (*process, error) {
	path, err := find(p.path)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, p.args...) //nolint:noctx // stop ends it
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, p.env...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := startOn(p.core, cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	started := &process{program: p, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(started.done)
	}()
	return started, nil
}

// startOn starts cmd on one processor: a process inherits it from the thread that
// starts it, so that no moment of it runs elsewhere.
func startOn(core int, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := pin(core); err != nil {
		return err
	}
	err := cmd.Start()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// pin keeps the calling thread on one processor.
func pin(core int) error {
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processor %d: %w", core, err)
	}
	return nil
}

// stop ends the process group and waits for it.
func (p *process) stop() {
	const grace = 3 * time.Second
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// kill ends the process group at once. It is for what is thrown away anyway.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// signal sends sig to the whole group, unless it has ended.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.done: // the number may be somebody else's by now
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// listening waits until somebody accepts connections on address.
func (p *process) listening(ctx context.Context, address string) error {
	return p.until(ctx, func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// until waits until condition holds, the process ends or it takes too long.
func (p *process) until(ctx context.Context, condition func() bool) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-p.done:
			return p.explain("ended at once")
		case <-ctx.Done():
			return p.explain("is not ready: " + ctx.Err().Error())
		case <-tick.C:
		}
	}
	return nil
}

// explain says that the program is not what it should be and, as its output is
// thrown away, starts it once more to hear why.
func (p *process) explain(what string) error {
	p.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	again := exec.CommandContext(ctx, p.cmd.Path, p.args...)
	again.Env = p.cmd.Env
	output, _ := again.CombinedOutput()
	const most = 2000
	return fmt.Errorf("%s %s: %s\n%.*s", p.path, strings.Join(p.args, " "), what, most, output)
}

// usage is what the processes of some groups have used.
type usage struct {
	cpu  time.Duration // user and system
	peak int64         // bytes, VmHWM; pages that processes share count for each
	now  int64         // bytes, VmRSS
	file int64         // bytes of that which are pages of files: the program itself
}

// measure reads what the groups of these processes have used so far.
func measure(processes []*process) (usage, error) {
	var sum usage
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return sum, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		group, err := groupOf(pid)
		if err != nil || !anyGroup(processes, group) { // it may have ended meanwhile
			continue
		}
		cpu, err := processorTime(pid)
		if err != nil {
			continue
		}
		sum.cpu += cpu
		sum.peak += readMemory(pid, "VmHWM:")
		sum.now += readMemory(pid, "VmRSS:")
		sum.file += readMemory(pid, "RssFile:")
	}
	if sum.cpu == 0 && len(processes) > 0 && sum.now == 0 {
		return sum, fmt.Errorf("%s has gone", processes[0].path)
	}
	return sum, nil
}

func anyGroup(processes []*process, group int) bool {
	for _, p := range processes {
		if p.cmd.Process.Pid == group {
			return true
		}
	}
	return false
}

// groupOf returns the process group of a process.
func groupOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in brackets, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const groupField = 2 // pgrp of proc(5), counted from the state
	return strconv.Atoi(fields[groupField])
}

// processorTime returns the user and system time of a process, with those of its threads that
// have ended. The figures in /proc have steps of ten milliseconds, too coarse for a turn.
func processorTime(pid int) (time.Duration, error) {
	// As clock_getcpuclockid(3) makes it of a process: CPUCLOCK_SCHED for a thread group.
	const schedClock = 2
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &used); err != nil {
		return 0, err
	}
	return time.Duration(used.Nano()), nil
}

// readMemory returns a line of /proc/PID/status in bytes, 0 if it is not there.
func readMemory(pid int, name string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kilobytes, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

// nextPort is below the ports that Linux gives to outgoing connections, of which
// there are many here.
var nextPort = 20_000 + os.Getpid()%5_000

// freePort returns a port of loopback that is free now, and not one that it
// returned before. It is not for concurrent use.
func freePort() (int, error) {
	const highest = 32_000
	for nextPort < highest {
		nextPort++
		listener, err := net.Listen("tcp", address(nextPort)) //nolint:noctx // returns at once
		if err == nil {
			return nextPort, listener.Close()
		}
	}
	return 0, errors.New("no port is free")
}
