package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processor returns the name of the processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "?"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// Columns of /proc/stat.
const (
	statIdle   = 4
	statIOWait = 5
	statSteal  = 8
)

// spentTime returns how long a processor has spent in the given ways since the machine was started, 0 if
// that is not known.
func spentTime(core int, ways ...int) (spent time.Duration) {
	const tick = 10 * time.Millisecond // of USER_HZ, which is 100 everywhere
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		columns := strings.Fields(line)
		if len(columns) <= statSteal || columns[0] != fmt.Sprintf("cpu%d", core) {
			continue
		}
		for _, way := range ways {
			ticks, _ := strconv.ParseInt(columns[way], 10, 64)
			spent += time.Duration(ticks) * tick
		}
	}
	return spent
}

// stolenTime returns for how long the host had given the gateway's processor to others.
func stolenTime() time.Duration { return spentTime(gatewayCore, statSteal) }

// loadIdleTime returns for how long the load's processor had nothing to do.
func loadIdleTime() time.Duration { return spentTime(loadCore, statIdle, statIOWait) }

var versionNumber = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// versions returns the versions of all programs that take part.
func versions() []string {
	list := []string{runtime.Version()}
	for _, program := range [][]string{
		{"nginx", "-v"}, {"haproxy", "-v"}, {"caddy", "version"}, {"redis-server", "--version"}, {"wrk", "-v"}, {"h2load", "--version"},
	} {
		path, err := find(program[0])
		if err != nil {
			continue
		}
		output, _ := exec.Command(path, program[1:]...).CombinedOutput() //nolint:noctx // prints a line; wrk -v exits with 1
		list = append(list, program[0]+" "+versionNumber.FindString(string(output)))
	}
	return list
}
