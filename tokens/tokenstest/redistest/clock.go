package redistest

import (
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource string

// StartWithClock is Start for a server whose clock StepClock can set. TIME, also in scripts, and
// the expiry of keys use that clock. It needs Linux and a C compiler; without them, the test is
// skipped, as by Start.
func StartWithClock(t testing.TB, arguments ...string) *Server {
	t.Helper()
	s := configure(t, rand.Text(), arguments...)
	compiler := lookUp(t, "cc", "Debian: apt-get install gcc libc6-dev")
	library := filepath.Join(s.dir, "clock.so")
	build := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", library, "-x", "c", "-")
	build.Stdin = strings.NewReader(clockSource)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	s.clock = filepath.Join(s.dir, "clock")
	s.StepClock(0)
	s.environment = []string{"LD_PRELOAD=" + library, "REDISTEST_CLOCK=" + s.clock}
	s.launch()
	return s
}

// StepClock moves the clock of a server from StartWithClock forwards, or
// backwards if d is negative. Steps add up.
func (s *Server) StepClock(d time.Duration) {
	s.t.Helper()
	s.stepped += d
	// Written in place, because the server has the file mapped.
	file, err := os.OpenFile(s.clock, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(s.stepped.Microseconds())))
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
