package redislease

import (
	"errors"
	"fmt"
	"time"

	"snowgate/idgen"
)

// Reasons why there is no worker number. Each is returned together with
// [idgen.ErrNoWorker].
var (
	// ErrAllTaken: every number that may be chosen is leased.
	ErrAllTaken = errors.New("all worker numbers are taken")

	// ErrTaken: the only number that may be chosen is leased by somebody else.
	ErrTaken = errors.New("the worker number is taken")

	// ErrExhausted: the registry has given out its last number, and none was freed (see [Free]).
	ErrExhausted = errors.New("the registry of worker numbers is used up")

	// ErrQuarantine: the registry is new or may have forgotten something, and
	// the wait that follows was cut short.
	ErrQuarantine = errors.New("the registry of worker numbers is in quarantine")
)

// SchemeError says that the registry was begun with another layout or epoch.
// It wraps [idgen.ErrSchemeMismatch]. Starting in spite of it would repeat ids.
type SchemeError struct {
	Ours, Recorded string // fingerprints
	Key            string // where it is recorded
}

func (e *SchemeError) Error() string {
	return fmt.Sprintf("%v: ours is %s, but %s was begun with %s", idgen.ErrSchemeMismatch, e.Ours, e.Key, e.Recorded)
}

// Unwrap returns [idgen.ErrSchemeMismatch].
func (e *SchemeError) Unwrap() error { return idgen.ErrSchemeMismatch }

// TakenError says who holds the only number that may be chosen. It wraps
// [idgen.ErrNoWorker] and [ErrTaken].
type TakenError struct {
	Worker int64
	Holder string
	Left   time.Duration // until the lease ends, unless its holder renews it
	Until  time.Time     // when it ends, by the clock of Redis
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("redislease: %v: %v: %d is leased by %s, for another %v unless renewed",
		idgen.ErrNoWorker, ErrTaken, e.Worker, e.Holder, e.Left)
}

// Unwrap returns [idgen.ErrNoWorker] and [ErrTaken].
func (e *TakenError) Unwrap() []error { return []error{idgen.ErrNoWorker, ErrTaken} }

// OffsetError says that a clock is too far from Redis TIME to stamp ids. It
// wraps [idgen.ErrClock].
type OffsetError struct {
	Offset time.Duration // of the clock, ahead of Redis
	Limit  time.Duration
}

func (e *OffsetError) Error() string {
	return fmt.Sprintf("%v: it is %v ahead of Redis TIME, at most ±%v is allowed", idgen.ErrClock, e.Offset, e.Limit)
}

// Unwrap returns [idgen.ErrClock].
func (e *OffsetError) Unwrap() error { return idgen.ErrClock }

// noWorker wraps one of the reasons.
func noWorker(reason error, format string, args ...any) error {
	return fmt.Errorf("redislease: %w: %w"+format, append([]any{idgen.ErrNoWorker, reason}, args...)...)
}

// lost says who has the number now.
func lost(r reply) error {
	return fmt.Errorf("redislease: worker %d: %w: it is held by %s", r.number, idgen.ErrLeaseLost, r.text)
}
