package gateway

import (
	"errors"
	"fmt"
	"time"

	"snowgate/config"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
)

// hostClock is the machine's clock, for SNOWGATE_ID_CLOCK=host.
type hostClock struct{}

// Now implements [idgen.Clock].
func (hostClock) Now() (int64, error) { return hostTime().UnixMilli(), nil }

// clockOptions returns the options for the clock that ids are stamped by. The ceiling of ids
// follows Redis TIME with either: the host's clock only chooses stamps beneath it.
func clockOptions(choice string, reference *redislease.Clock) []idgen.Option {
	if choice == config.ClockHost {
		return []idgen.Option{idgen.WithClock(hostClock{}), idgen.WithLeaseClock(reference)}
	}
	return []idgen.Option{idgen.WithClock(reference)}
}

// noID is an error of the generator with the reason to show to callers.
type noID struct {
	error
	public string
}

func (e *noID) Unwrap() error { return e.error }

// Public returns the reason in words for the client that asked for a token.
func (e *noID) Public() string { return e.public }

// reasons are the words for clients that ask for a token.
var reasons = []struct {
	err    error
	public string
}{
	{idgen.ErrClockBehind, "the clock is behind ids that were issued"},
	{idgen.ErrRollbacksExhausted, "the clock stepped back more often than ids can count"},
	{idgen.ErrCeiling, "the clock is ahead of the recorded ceiling"},
	{idgen.ErrClock, "the time is not certain"},
	{idgen.ErrSaturated, "the ids of the moment are used up"},
	{idgen.ErrNoWorker, "no worker number is held"},
}

// whyNoID adds to an error of the generator the reason to show to callers and, if the host's clock
// is the cause, its offset and the way out.
func whyNoID(err error, offset time.Duration, host bool) error {
	if host {
		err = blameHost(err, offset)
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return &noID{err, r.public}
		}
	}
	return err
}

// blameHost names the offset of the host's clock ahead of Redis TIME where that explains err.
func blameHost(err error, offset time.Duration) error {
	const wayOut = "set the host's clock right, or use SNOWGATE_ID_CLOCK=redis"
	off := offset.Abs().Round(time.Millisecond)
	switch {
	case errors.Is(err, idgen.ErrCeiling) && offset > time.Second: // less than the ceiling is ever ahead
		return fmt.Errorf("%w: the host's clock is %v ahead of Redis TIME, which ceilings follow by up to 3 s; %s", err, off, wayOut)
	case errors.Is(err, idgen.ErrClockBehind) && offset < -time.Millisecond:
		return fmt.Errorf("%w: the host's clock is %v behind Redis TIME; %s", err, off, wayOut)
	}
	return err
}
