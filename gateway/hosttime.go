//go:build !clocktest

package gateway

import "time"

// hostTime reads the machine's clock.
func hostTime() time.Time { return time.Now() }
