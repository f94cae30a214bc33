//go:build linux || darwin || freebsd || netbsd || openbsd

package cli

import (
	"context"
	"os"
	"syscall"
	"time"
)

const (
	// lockPatience bounds the wait for another process, which may have been stopped.
	lockPatience = 15 * time.Second
	lockPoll     = 20 * time.Millisecond
)

// lockFile waits until no other process holds the file of path locked, and locks it until unlock is
// called or the process ends. Without a lock after lockPatience it goes on: two processes
// then get a token each, and no more than that.
func lockFile(ctx context.Context, path string) (unlock func()) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}
	}
	unlock = func() { _ = file.Close() }
	deadline := time.Now().Add(lockPatience)
	for syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil && time.Now().Before(deadline) {
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return unlock
		}
	}
	return unlock
}
