package idgen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Fixed is a source that always gives the same number. It remembers nothing:
// that nobody else uses the number is the caller's promise, and a restart with
// a clock that stepped back may repeat ids. Wrap it in HighWater, or use a
// source that keeps a ceiling, where this matters.
func Fixed(w Worker) Source { return fixed(func() (Worker, error) { return w, nil }) }

// Environment is like Fixed, with the numbers read from two environment
// variables when the generator starts. An empty datacenterVar stands for a
// datacenter number of 0. A variable that is unset or not a number is an error
// wrapping ErrNoWorker.
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

// fixed is a source without memory.
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
