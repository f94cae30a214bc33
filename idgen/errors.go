package idgen

import "errors"

// Sentinel errors. Test for them with errors.Is; the text of the returned error adds detail.
var (
	// ErrLeaseLost: another process holds the worker number now. The former holder may still use
	// timestamps up to its ceiling, but the ceiling is not extended any more.
	ErrLeaseLost = errors.New("idgen: the worker number belongs to somebody else now")

	// ErrCeiling: the clock has passed the last timestamp made durable for this holder, so no id
	// may be issued until the ceiling is extended.
	ErrCeiling = errors.New("idgen: the durable ceiling is reached")

	// ErrSaturated: the ids of this millisecond are used up, and the caller may not wait long
	// enough for the next free one.
	ErrSaturated = errors.New("idgen: no id within the wait bound")

	// ErrTimeExhausted: the time field can no longer hold the timestamp.
	ErrTimeExhausted = errors.New("idgen: the time field of the layout is exhausted")

	// ErrBeforeEpoch: the clock reads earlier than the epoch.
	ErrBeforeEpoch = errors.New("idgen: the clock reads a time before the epoch")

	// ErrClock: the clock cannot be trusted, for instance because it is too far off its reference.
	// Issuing is refused until it recovers.
	ErrClock = errors.New("idgen: the clock is not trustworthy")

	// ErrClockBehind: the clock is behind ids already issued, and the policy does not allow the
	// generator to continue. Either the clock stepped back, or it has not reached the first
	// timestamp of the lease.
	ErrClockBehind = errors.New("idgen: the clock is behind ids already issued")

	// ErrRollbacksExhausted: the clock stepped back more often than the rollback field of the
	// layout can count. The error stays until a new generator is started.
	ErrRollbacksExhausted = errors.New("idgen: the rollback field is full")

	// ErrNoWorker: the generator holds no worker number, or the source could not provide one.
	ErrNoWorker = errors.New("idgen: no worker number")

	// ErrFieldRange: a value, most often a worker or datacenter number, does not fit its field.
	ErrFieldRange = errors.New("idgen: value does not fit its field")

	// ErrSchemeMismatch: layout or epoch differ from those recorded when the first ids were issued.
	ErrSchemeMismatch = errors.New("idgen: layout or epoch differ from the recorded ones")

	// ErrClosed: the generator has been closed.
	ErrClosed = errors.New("idgen: generator closed")
)
