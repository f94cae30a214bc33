//go:build unix

package cli

import (
	"os"
	"syscall"
	"testing"
)

func TestHealthSignals(t *testing.T) {
	told := make(chan bool, 1)
	stop := onHealthSignal(func(healthy bool) { told <- healthy })
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true} {
		signal := map[bool]syscall.Signal{false: syscall.SIGUSR1, true: syscall.SIGUSR2}[want]
		if err := self.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if got := <-told; got != want {
			t.Errorf("after %v it is told %v, want %v", signal, got, want)
		}
	}
}
