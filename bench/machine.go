package main

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"

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
