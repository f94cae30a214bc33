package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/internal/deadline"
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
				var timers deadline.Timers
				for range 3 { // with a new timer, and with one that runs for an earlier wait
					parent, leave := context.WithCancelCause(t.Context())
					ctx := timers.WithTimeout(parent, test.limit)
					done := make(chan struct{})
					in(test.done, func() { close(done) })
					in(test.leaves, func() { leave(left) })
					began := time.Now()
					if err := deadline.Wait(ctx, done); err != test.want || time.Since(began) != test.after {
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

// in calls f after d, unless d is 0.
func in(d time.Duration, f func()) {
	if d > 0 {
		time.AfterFunc(d, f)
	}
}

// TestTimersOfOthers: a timer from an earlier wait ends a new wait neither too early nor too late.
func TestTimersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers deadline.Timers
		for _, limit := range []time.Duration{time.Hour, time.Second, 3 * time.Second, time.Millisecond, time.Minute, time.Second} {
			ctx := timers.WithTimeout(t.Context(), limit)
			began := time.Now()
			if err := deadline.Wait(ctx, nil); err == nil || time.Since(began) != limit {
				t.Errorf("%v after %s, want one after %s", err, time.Since(began), limit)
			}
			ctx.Release()
			ended := timers.WithTimeout(t.Context(), limit) // leaves its timer running
			done := make(chan struct{})
			close(done)
			if err := deadline.Wait(ended, done); err != nil {
				t.Error(err)
			}
			ended.Release()
		}
	})
}

// TestTimerFiresForNobody: a timer may fire while nobody waits, or just as a wait ends for another
// reason. It does not end the next wait.
func TestTimerFiresForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers deadline.Timers
		done := make(chan struct{})
		close(done)
		idle := timers.WithTimeout(t.Context(), time.Second)
		if err := deadline.Wait(idle, done); err != nil {
			t.Error(err)
		}
		idle.Release()
		time.Sleep(2 * time.Second)
		next := timers.WithTimeout(t.Context(), time.Minute)
		defer next.Release()
		began := time.Now()
		if err := deadline.Wait(next, nil); err == nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s, want one after a minute", err, time.Since(began))
		}
	})
}

// TestContext: a Context works like any other context for code that does not know Wait.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers deadline.Timers
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
		var timers deadline.Timers
		late := timers.WithTimeout(t.Context(), time.Second)
		time.Sleep(time.Second)
		if !errors.Is(late.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(late), context.DeadlineExceeded) {
			t.Errorf("too late: %v, %v", late.Err(), context.Cause(late))
		}
	})
}

func TestRelease(t *testing.T) {
	var timers deadline.Timers
	before, after := timers.WithTimeout(t.Context(), time.Hour), timers.WithTimeout(t.Context(), time.Hour)
	done := before.Done()
	before.Release()
	after.Release()
	for _, c := range []*deadline.Context{before, after} {
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
	if err := deadline.Wait(ctx, done); err != nil {
		t.Error(err)
	}
	cancel()
	if err := deadline.Wait(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func BenchmarkWait(b *testing.B) {
	done := make(chan struct{})
	close(done)
	parent, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("deadline", func(b *testing.B) {
		var timers deadline.Timers
		b.ReportAllocs()
		for b.Loop() {
			ctx := timers.WithTimeout(parent, time.Second)
			_ = deadline.Wait(ctx, done)
			ctx.Release()
		}
	})
	b.Run("context", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(parent, time.Second)
			_ = deadline.Wait(ctx, done)
			cancel()
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for _, tt := range []struct {
			name string
			ctx  context.Context
			want error
			d    time.Duration
		}{
			{"to the end", ctx, nil, time.Second},
			{"without a Done", context.Background(), nil, time.Second},
			{"interrupted", ctx, left, time.Minute},
		} {
			begun := time.Now()
			if tt.want != nil {
				in(time.Second, func() { cancel(left) })
			}
			if err := deadline.Sleep(tt.ctx, tt.d); err != tt.want || time.Since(begun) != time.Second {
				t.Errorf("%s: Sleep = %v after %s, want %v after a second", tt.name, err, time.Since(begun), tt.want)
			}
		}
	})
}
