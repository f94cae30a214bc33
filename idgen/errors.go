package idgen

import "errors"

// Sentinel errors. Every error that leaves this package for one of these
// reasons satisfies errors.Is with the sentinel; the text around it says more.
var (
	// ErrLeaseLost: somebody else holds the worker number now. A holder may
	// still use what lies below its ceiling; it gets no further.
	ErrLeaseLost = errors.New("idgen: the worker number belongs to somebody else now")

	// ErrCeiling: the clock has passed the last timestamp made durable for this
	// holder, so no id may be issued until the ceiling is extended.
	ErrCeiling = errors.New("idgen: the durable ceiling is reached")

	// ErrSaturated: the layout's ids per millisecond are used up and the next
	// free one is further away than the caller may wait.
	ErrSaturated = errors.New("idgen: no id within the wait bound")

	// ErrTimeExhausted: the time field can no longer hold the timestamp.
	ErrTimeExhausted = errors.New("idgen: the time field of the layout is exhausted")

	// ErrBeforeEpoch: the clock reads earlier than the epoch.
	ErrBeforeEpoch = errors.New("idgen: the clock reads a time before the epoch")

	// ErrClock: the clock cannot be trusted, for instance because it is too far
	// off its reference. Issuing is refused until it recovers.
	ErrClock = errors.New("idgen: the clock is not trustworthy")

	// ErrClockBehind: the clock is behind ids already issued (it stepped back,
	// or it has not reached the first timestamp this holder may use) and the
	// policy does not allow going on.
	ErrClockBehind = errors.New("idgen: the clock is behind ids already issued")

	// ErrRollbacksExhausted: the clock stepped back more often than the
	// rollback field of the layout can count. The error stays until the
	// generator is started anew.
	ErrRollbacksExhausted = errors.New("idgen: the rollback field is full")

	// ErrNoWorker: no worker number is held, or none could be had.
	ErrNoWorker = errors.New("idgen: no worker number")

	// ErrFieldRange: a value, most often a worker or datacenter number, does not fit its field.
	ErrFieldRange = errors.New("idgen: value does not fit its field")

	// ErrSchemeMismatch: layout or epoch differ from those recorded when the
	// first ids were issued.
	ErrSchemeMismatch = errors.New("idgen: layout or epoch differ from the recorded ones")

	// ErrClosed: the generator has been closed.
	ErrClosed = errors.New("idgen: generator closed")
)
