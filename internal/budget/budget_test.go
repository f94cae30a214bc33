package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/internal/budget"
)

func TestWait(t *testing.T) {
	left := errors.New("the client has left")
	for name, test := range map[string]struct {
		limit, done, leaves time.Duration // 0: never
		want                error
		after               time.Duration
	}{
		"done in time":               {limit: time.Second, done: 10 * time.Millisecond, after: 10 * time.Millisecond},
		"too late":                   {limit: time.Second, done: time.Minute, want: context.DeadlineExceeded, after: time.Second},
		"the caller leaves":          {limit: time.Second, leaves: 20 * time.Millisecond, want: context.Canceled, after: 20 * time.Millisecond},
		"the caller leaves too late": {limit: time.Second, leaves: time.Minute, want: context.DeadlineExceeded, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var timers budget.Timers
				for range 3 { // with a new timer, and with one that runs for somebody before
					parent, leave := context.WithCancelCause(t.Context())
					ctx := timers.WithTimeout(parent, test.limit)
					done := make(chan struct{})
					in(test.done, func() { close(done) })
					in(test.leaves, func() { leave(left) })
					began := time.Now()
					if err := budget.Wait(ctx, done); err != test.want || time.Since(began) != test.after {
						t.Errorf("%v after %s, want %v after %s", err, time.Since(began), test.want, test.after)
					}
					if err := ctx.Err(); err != test.want {
						t.Errorf("Err() = %v, want %v", err, test.want)
					}
					if cause := context.Cause(ctx); test.want == context.Canceled && cause != left {
						t.Errorf("the cause is %v", cause)
					}
					ctx.Release()
					leave(nil)
				}
			})
		})
	}
}

func TestWaiter(t *testing.T) {
	left := errors.New("the client has left")
	for name, test := range map[string]struct {
		limit, done, leaves time.Duration // 0: never
		want                error
		after               time.Duration
	}{
		"done in time":           {limit: time.Second, done: 10 * time.Millisecond, after: 10 * time.Millisecond},
		"done after a while":     {limit: time.Second, done: 600 * time.Millisecond, leaves: 601 * time.Millisecond, after: 600 * time.Millisecond},
		"too late":               {limit: time.Second, done: time.Minute, want: context.DeadlineExceeded, after: time.Second},
		"too late, in no time":   {limit: time.Millisecond, done: time.Minute, want: context.DeadlineExceeded, after: time.Millisecond},
		"the caller leaves":      {limit: time.Second, leaves: 20 * time.Millisecond, want: context.Canceled, after: budget.Inattention},
		"the caller leaves late": {limit: time.Second, leaves: 600 * time.Millisecond, want: context.Canceled, after: 600 * time.Millisecond},
		"done, and too late":     {limit: time.Second, done: time.Second - time.Nanosecond, after: time.Second - time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var timers budget.Timers
				w := budget.NewWaiter()
				for range 3 { // with a new timer, and with one that runs for the wait before
					parent, leave := context.WithCancelCause(t.Context())
					ctx := timers.WithTimeout(parent, test.limit)
					in(test.done, w.Done)
					in(test.leaves, func() { leave(left) })
					began := time.Now()
					if err := w.Wait(ctx); err != test.want || time.Since(began) != test.after {
						t.Errorf("%v after %s, want %v after %s", err, time.Since(began), test.want, test.after)
					}
					if test.want != nil {
						w = budget.NewWaiter()
					}
					ctx.Release()
					leave(nil)
				}
				time.Sleep(time.Hour) // Done, for nobody, blocks nobody
			})
		})
	}
}

// A context that was there before the wait has as much time as is left.
func TestWaiterBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers budget.Timers
		ctx := timers.WithTimeout(t.Context(), time.Second)
		time.Sleep(700 * time.Millisecond)
		began := time.Now()
		if err := budget.NewWaiter().Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%v after %s, want one after 300ms", err, time.Since(began))
		}
		w := budget.NewWaiter()
		w.Done()
		if err := w.Wait(ctx); err != nil {
			t.Errorf("%v, though it was done before", err)
		}
	})
}

// The timer of a wait that has ended says nothing to the next one, which would not be
// inattentive then.
func TestWaiterWaitsAgain(t *testing.T) {
	for name, done := range map[string]time.Duration{"done in time": 10 * time.Millisecond, "done after a while": 600 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var timers budget.Timers
				w := budget.NewWaiter()
				for range 3 {
					in(done, w.Done)
					if err := w.Wait(timers.WithTimeout(t.Context(), time.Second)); err != nil {
						t.Error(err)
					}
					time.Sleep(2 * time.Second)
				}
				parent, leave := context.WithCancel(t.Context())
				in(20*time.Millisecond, leave)
				began := time.Now()
				if err := w.Wait(timers.WithTimeout(parent, time.Second)); err == nil || time.Since(began) != budget.Inattention {
					t.Errorf("%v after %s, want one after %s", err, time.Since(began), budget.Inattention)
				}
			})
		})
	}
}

func TestWaiterWithAnotherContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := budget.NewWaiter()
	w.Done()
	if err := w.Wait(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// in calls f after d, unless that is 0.
func in(d time.Duration, f func()) {
	if d > 0 {
		time.AfterFunc(d, f)
	}
}

// A timer that was set for somebody before neither ends a wait too early nor too late.
func TestTimersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers budget.Timers
		for _, limit := range []time.Duration{time.Hour, time.Second, 3 * time.Second, time.Millisecond, time.Minute, time.Second} {
			ctx := timers.WithTimeout(t.Context(), limit)
			began := time.Now()
			if err := budget.Wait(ctx, nil); err == nil || time.Since(began) != limit {
				t.Errorf("%v after %s, want one after %s", err, time.Since(began), limit)
			}
			ctx.Release()
			ended := timers.WithTimeout(t.Context(), limit) // leaves its timer running
			done := make(chan struct{})
			close(done)
			if err := budget.Wait(ended, done); err != nil {
				t.Error(err)
			}
			ended.Release()
		}
	})
}

// An alarm that would ring when nobody waits does not ring for who waits next.
func TestAlarmsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers budget.Timers
		done := make(chan struct{})
		close(done)
		idle := timers.WithTimeout(t.Context(), time.Second)
		if err := budget.Wait(idle, done); err != nil {
			t.Error(err)
		}
		idle.Release()
		time.Sleep(2 * time.Second)
		next := timers.WithTimeout(t.Context(), time.Minute)
		defer next.Release()
		began := time.Now()
		if err := budget.Wait(next, nil); err == nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s, want one after a minute", err, time.Since(began))
		}
	})
}

// It is a context like any other, for who does not know Wait.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers budget.Timers
		for name, test := range map[string]struct{ parent, want time.Duration }{
			"its own deadline":   {time.Hour, time.Minute},
			"that of its parent": {time.Second, time.Second},
		} {
			parent, cancel := context.WithTimeout(t.Context(), test.parent)
			defer cancel()
			ctx := timers.WithTimeout(parent, time.Minute)
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != test.want {
				t.Errorf("%s: ends in %s, %t, want %s", name, time.Until(end), ok, test.want)
			}
			if ctx.Err() != nil {
				t.Errorf("%s: %v at once", name, ctx.Err())
			}
			began := time.Now()
			child, stop := context.WithCancel(ctx)
			<-child.Done()
			stop()
			if since := time.Since(began); since != test.want || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("%s: %v after %s, want %s", name, ctx.Err(), since, test.want)
			}
		}
	})
}

func TestErrWithoutDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers budget.Timers
		late := timers.WithTimeout(t.Context(), time.Second)
		time.Sleep(time.Second)
		if !errors.Is(late.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(late), context.DeadlineExceeded) {
			t.Errorf("too late: %v, %v", late.Err(), context.Cause(late))
		}
	})
}

func TestRelease(t *testing.T) {
	var timers budget.Timers
	before, after := timers.WithTimeout(t.Context(), time.Hour), timers.WithTimeout(t.Context(), time.Hour)
	done := before.Done()
	before.Release()
	after.Release()
	for _, c := range []*budget.Context{before, after} {
		if !errors.Is(c.Err(), context.Canceled) {
			t.Errorf("Err() = %v after Release", c.Err())
		}
		<-c.Done()
	}
	<-done
}

func TestWaitWithAnotherContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	close(done)
	if err := budget.Wait(ctx, done); err != nil {
		t.Error(err)
	}
	cancel()
	if err := budget.Wait(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func BenchmarkWait(b *testing.B) {
	done := make(chan struct{})
	close(done)
	parent, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("budget", func(b *testing.B) {
		var timers budget.Timers
		b.ReportAllocs()
		for b.Loop() {
			ctx := timers.WithTimeout(parent, time.Second)
			_ = budget.Wait(ctx, done)
			ctx.Release()
		}
	})
	b.Run("waiter", func(b *testing.B) {
		var timers budget.Timers
		w := budget.NewWaiter()
		b.ReportAllocs()
		for b.Loop() {
			ctx := timers.WithTimeout(parent, time.Second)
			w.Done()
			_ = w.Wait(ctx)
			ctx.Release()
		}
	})
	b.Run("context", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(parent, time.Second)
			_ = budget.Wait(ctx, done)
			cancel()
		}
	})
}
