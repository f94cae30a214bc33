//go:build !clocktest

package main

import "time"

// hostTime reads the machine's clock.
func hostTime() time.Time { return time.Now() }
