package idgen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Fixed returns a source that always grants the number w. The caller must make sure that no other
// process uses this number. The source keeps no ceiling: a restart with a clock that stepped back
// may repeat ids. Where this matters, wrap the source in [HighWater], or use a source that keeps a
// ceiling.
func Fixed(w Worker) Source { return fixed(func() (Worker, error) { return w, nil }) }

// Environment is like [Fixed], but reads the numbers from two environment variables when the
// generator starts. An empty datacenterVar means datacenter number 0. If a variable is unset or not
// a number, Acquire returns an error that wraps ErrNoWorker.
func Environment(datacenterVar, workerVar string) Source {
	return fixed(func() (w Worker, err error) {
		if datacenterVar != "" {
			w.Datacenter, err = envNumber(datacenterVar)
		}
		number, workerErr := envNumber(workerVar)
		w.Number = number
		return w, errors.Join(err, workerErr)
	})
}

func envNumber(name string) (int64, error) {
	text, ok := os.LookupEnv(name)
	if !ok {
		return 0, fmt.Errorf("%w: %s is not set", ErrNoWorker, name)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s=%q is not a number", ErrNoWorker, name, text)
	}
	return n, nil
}

// fixed implements Source without a ceiling.
type fixed func() (Worker, error)

func (f fixed) Acquire(_ context.Context, s Scheme, now int64) (Lease, error) {
	w, err := f()
	if err != nil {
		return nil, err
	}
	if err := s.layout.CheckWorker(w); err != nil {
		return nil, err
	}
	return fixedLease{w, now}, nil
}

type fixedLease struct {
	worker Worker
	floor  int64
}

func (l fixedLease) Worker() Worker                               { return l.worker }
func (l fixedLease) Floor() int64                                 { return l.floor }
func (l fixedLease) Ceiling() int64                               { return NoCeiling }
func (l fixedLease) Extend(context.Context, int64) (int64, error) { return NoCeiling, nil }
func (l fixedLease) Release(context.Context, int64) error         { return nil }
