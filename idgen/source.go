package idgen

import (
	"context"
	"math"
)

// NoCeiling is the ceiling of a lease that records none. Such a lease does not protect against
// restarts: with a clock that stepped back, a restart may repeat ids.
const NoCeiling = math.MaxInt64

// Worker is a worker number, split as the layout splits it. Datacenter is 0 if the layout has no
// such field.
type Worker struct {
	Datacenter, Number int64
}

// Source grants the right to issue ids under a worker number.
type Source interface {
	// Acquire takes a worker number for scheme s. now is the current reading of the id clock, in
	// milliseconds since the epoch of s. The lease's ceiling is durable when Acquire returns. The
	// error wraps ErrNoWorker when all numbers are taken. The generator never calls Acquire
	// concurrently, but calls it again after a lease was lost.
	Acquire(ctx context.Context, s Scheme, now int64) (Lease, error)
}

// Lease is the right to use the timestamps from floor to ceiling under one worker number.
// Timestamps are milliseconds since the epoch of the scheme. The next holder of the number gets a
// floor above every ceiling of this lease. That keeps ids distinct, whatever the clocks do.
//
// One goroutine at a time calls the methods.
type Lease interface {
	// Worker returns the number held; it never changes.
	Worker() Worker

	// Floor returns the first timestamp this holder may use; it never changes.
	Floor() int64

	// Ceiling returns the last timestamp made durable so far, or NoCeiling if the lease records
	// none.
	Ceiling() int64

	// Extend makes a later ceiling durable and returns it. now is the current reading of the id
	// clock. The error wraps ErrLeaseLost if another process holds the number. The generator treats
	// any other error as temporary, and the ceiling stays as it was.
	Extend(ctx context.Context, now int64) (ceiling int64, err error)

	// Release returns the number. last is the last timestamp issued; this holder never uses a later
	// one.
	Release(ctx context.Context, last int64) error
}
