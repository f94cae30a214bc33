//go:build profile

package main

import (
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

// The benchmark lays this file over the gateway's main package (go build
// -overlay) to see where its time goes. It is in no other build. SIGUSR1 begins
// a profile of the processor in the file that BENCH_PROFILE names, SIGUSR2 ends
// it.
func init() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for range signals {
			file, err := os.Create(os.Getenv("BENCH_PROFILE") + ".part")
			if err != nil {
				panic(err)
			}
			if err := pprof.StartCPUProfile(file); err != nil {
				panic(err)
			}
			<-signals
			pprof.StopCPUProfile()
			if err := file.Close(); err != nil {
				panic(err)
			}
			// The name appears when the profile is whole.
			if err := os.Rename(file.Name(), os.Getenv("BENCH_PROFILE")); err != nil {
				panic(err)
			}
		}
	}()
}
