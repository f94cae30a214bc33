//go:build !linux

package lineartest

import "time"

var begun = time.Now()

// threadTime returns the time that passes: the system does not tell that of a thread.
func threadTime() time.Duration { return time.Since(begun) }

// OtherThreadsTime returns the time that passes.
func OtherThreadsTime() time.Duration { return time.Since(begun) }
