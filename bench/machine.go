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

// stolenTime returns for how long the host had given the gateway's processor to others since
// the machine was started, 0 if that is not known.
func stolenTime() time.Duration {
	const tick = 10 * time.Millisecond // of USER_HZ, which is 100 everywhere
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		columns := strings.Fields(line)
		if len(columns) < 9 || columns[0] != fmt.Sprintf("cpu%d", gatewayCore) {
			continue
		}
		ticks, _ := strconv.ParseInt(columns[8], 10, 64)
		return time.Duration(ticks) * tick
	}
	return 0
}

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
