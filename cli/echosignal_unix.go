//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// onHealthSignal calls set with false for each signal USR1 and with true for each
// USR2, until stop is called.
func onHealthSignal(set func(healthy bool)) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			set(s == syscall.SIGUSR2)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
