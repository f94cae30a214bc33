package gatewaytest

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// HostClock stands for the clock of the host that gateways run on, which a test steps. Only the
// stamps of ids go by it, and those only with SNOWGATE_ID_CLOCK=host; the clock of the embedded
// Redis does not. Several gateways may share one; they may be started after it was stepped.
//
// Its methods may be called by any goroutine.
type HostClock struct {
	t    testing.TB
	path string

	mu     sync.Mutex
	offset time.Duration
}

// NewHostClock returns a clock that is right.
func NewHostClock(t testing.TB) *HostClock {
	t.Helper()
	c := &HostClock{t: t, path: filepath.Join(t.TempDir(), "clock")}
	c.Step(0)
	return c
}

// Step moves the clock by whole milliseconds, backwards if d is negative. Steps add up. When Step
// returns, no gateway reads another time any more.
func (c *HostClock) Step(d time.Duration) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
	next := c.path + ".new" // a reader meets the old or the new one
	err := os.WriteFile(next, []byte(strconv.FormatInt(c.offset.Milliseconds(), 10)), 0o600)
	if err == nil {
		err = os.Rename(next, c.path)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Now returns what the clock shows.
func (c *HostClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// binary returns the gateway to start: without a clock, the one that users have.
func (c *HostClock) binary(t testing.TB) string {
	t.Helper()
	if c == nil {
		return Binary(t)
	}
	path, err := buildClock()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// env returns what the gateway must be told.
func (c *HostClock) env() []string {
	if c == nil {
		return nil
	}
	return []string{"SNOWGATE_TEST_CLOCK=" + c.path}
}
