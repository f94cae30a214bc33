package idgen

import (
	"context"
	"math"
)

// NoCeiling is the ceiling of a lease that records none: it guards against
// nothing, and a restart with a clock that stepped back may repeat ids.
const NoCeiling = math.MaxInt64

// Worker is a worker number, split as the layout splits it. Datacenter is 0
// where the layout has no such field.
type Worker struct {
	Datacenter, Number int64
}

// Source hands out the right to issue ids as one worker.
type Source interface {
	// Acquire takes a worker number for scheme s. now is the current reading of
	// the id clock, in milliseconds since the epoch of s. The lease's ceiling is
	// durable when Acquire returns. Acquire is never called concurrently, but it
	// is called again after a lease was lost. It returns an error wrapping
	// ErrNoWorker when all numbers are taken.
	Acquire(ctx context.Context, s Scheme, now int64) (Lease, error)
}

// Lease is the right to issue timestamps in [floor, ceiling] as one worker. All
// timestamps are milliseconds since the epoch of the scheme. The next holder of
// the same number has a floor above every ceiling this one was given: that is
// what keeps ids apart, whatever the clocks do.
//
// Methods are called by one goroutine at a time.
type Lease interface {
	// Worker returns the number held; it never changes.
	Worker() Worker

	// Floor returns the first timestamp this holder may use; it never changes.
	Floor() int64

	// Ceiling returns the last timestamp made durable so far, NoCeiling if the
	// lease keeps no such record.
	Ceiling() int64

	// Extend makes a later ceiling durable and returns it. now is the current
	// reading of the id clock. The error wraps ErrLeaseLost if somebody else
	// holds the number; any other error is taken for passing trouble, and the
	// ceiling stays as it was.
	Extend(ctx context.Context, now int64) (ceiling int64, err error)

	// Release gives the number back. last is the last timestamp issued: nothing
	// above it has been or will be used by this holder.
	Release(ctx context.Context, last int64) error
}
