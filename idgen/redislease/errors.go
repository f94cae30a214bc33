package redislease

import (
	"errors"
	"fmt"
	"time"

	"snowgate/idgen"
)

// Reasons for a missing worker number. Each is returned together with [idgen.ErrNoWorker].
var (
	// ErrAllTaken: all numbers that the [Choice] permits are leased.
	ErrAllTaken = errors.New("all worker numbers are taken")

	// ErrTaken: another gateway has leased the only number that the [Choice] permits.
	ErrTaken = errors.New("the worker number is taken")

	// ErrExhausted: the registry has given out its last number, and none was freed (see [Free]).
	ErrExhausted = errors.New("the registry of worker numbers is used up")

	// ErrQuarantine: the registry is new or may have lost data, and ctx ended before the quarantine
	// did.
	ErrQuarantine = errors.New("the registry of worker numbers is in quarantine")
)

// SchemeError is the error if the registry was created with another layout or epoch. It wraps
// [idgen.ErrSchemeMismatch]. To start all the same would repeat ids.
type SchemeError struct {
	Ours, Recorded string // fingerprints
	Key            string // where it is recorded
}

func (e *SchemeError) Error() string {
	return fmt.Sprintf("%v: ours is %s, but %s was begun with %s", idgen.ErrSchemeMismatch, e.Ours, e.Key, e.Recorded)
}

// Unwrap returns [idgen.ErrSchemeMismatch].
func (e *SchemeError) Unwrap() error { return idgen.ErrSchemeMismatch }

// TakenError names the holder of the only number that the [Choice] permits. It wraps
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

// OffsetError is the error of a clock that differs too much from Redis TIME for issuing ids. It
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

// noWorker returns an error that wraps [idgen.ErrNoWorker] and reason.
func noWorker(reason error, format string, args ...any) error {
	return fmt.Errorf("redislease: %w: %w"+format, append([]any{idgen.ErrNoWorker, reason}, args...)...)
}

// lost returns the error for a number that another gateway holds now.
func lost(r reply) error {
	return fmt.Errorf("redislease: worker %d: %w: it is held by %s", r.number, idgen.ErrLeaseLost, r.text)
}
