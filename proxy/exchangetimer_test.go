package proxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPatience plays scenes on one timer and looks when it gave the service up
// and when the exchange became a long one.
func TestPatience(t *testing.T) {
	const limit = 10 * time.Second
	type step struct {
		at time.Duration
		do func(*exchangeTimer)
	}
	tests := []struct {
		name       string
		limit      time.Duration
		steps      []step
		give, long time.Duration // 0: never
	}{
		{"a silent service", limit, nil, limit, longRequestAfter},
		{"a service more impatiently waited for", longRequestAfter / 2, nil, longRequestAfter / 2, longRequestAfter},
		{"a short exchange", limit, []step{{longRequestAfter / 2, (*exchangeTimer).responded}, {longRequestAfter - 1, (*exchangeTimer).end}}, 0, 0},
		{"a long answer", limit, []step{{longRequestAfter / 2, (*exchangeTimer).responded}}, 0, longRequestAfter},
		{"an upload without end", limit, []step{{0, (*exchangeTimer).pause}}, 0, longRequestAfter},
		{"an upload with an end", limit, []step{{0, (*exchangeTimer).pause}, {3 * limit, (*exchangeTimer).resume}}, 4 * limit, longRequestAfter},
		{"a short upload", limit, []step{{0, (*exchangeTimer).pause}, {1, (*exchangeTimer).resume}}, limit + 1, longRequestAfter},
		{"uploading in bits", limit, []step{
			{0, (*exchangeTimer).pause}, {limit - 1, (*exchangeTimer).resume},
			{limit + 1, (*exchangeTimer).pause}, {2 * limit, (*exchangeTimer).resume},
		}, 3 * limit, longRequestAfter},
		{"reading on after the answer", limit, []step{
			{0, (*exchangeTimer).pause}, {1, (*exchangeTimer).responded}, {2, (*exchangeTimer).resume},
		}, 0, longRequestAfter},
		{"reading on after the end", limit, []step{{0, (*exchangeTimer).pause}, {1, (*exchangeTimer).end}, {2, (*exchangeTimer).resume}}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var given, long []time.Duration
				lasting := 0
				p := new(exchangeTimers).lend(test.limit, &waiter{
					func() { given = append(given, time.Since(begin)) },
					func() { lasting++ },
					func() { long = append(long, time.Since(begin)) },
				})
				for _, step := range test.steps {
					time.Sleep(time.Until(begin.Add(step.at)))
					step.do(p)
				}
				time.Sleep(10 * limit)
				p.end()
				wantOnce(t, "the service was given up", given, test.give)
				wantOnce(t, "the exchange was long", long, test.long)
				if lasting > 1 || lasting == 0 && len(long) > 0 {
					t.Errorf("the exchange has lasted %d times", lasting)
				}
			})
		})
	}
}

func wantOnce(t *testing.T, what string, got []time.Duration, want time.Duration) {
	t.Helper()
	if want == 0 && len(got) == 0 || len(got) == 1 && got[0] == want {
		return
	}
	t.Errorf("%s after %v, want %v (0: never)", what, got, want)
}

// waiter is a [timerOwner] of functions, where they are set.
type waiter struct{ slow, lasts, becomes func() }

func (w *waiter) tooSlow() { call(w.slow) }
func (w *waiter) lasting() { call(w.lasts) }
func (w *waiter) long()    { call(w.becomes) }

func call(f func()) {
	if f != nil {
		f()
	}
}

// TestPatienceIsLentAgain: a timer that goes off as it was set for somebody else does
// nothing to who has it now.
func TestPatienceIsLentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(exchangeTimers).lend(time.Second, &waiter{slow: func() { t.Error("who has ended was too slow") }})
		time.Sleep(time.Second - 1)
		p.end()
		begin := time.Now()
		var slow time.Duration
		p.begin(time.Minute, &waiter{slow: func() { slow = time.Since(begin) }})
		p.fire() // as the timer would that was not stopped in time
		time.Sleep(time.Hour)
		p.end()
		if slow != time.Minute {
			t.Errorf("too slow after %v, want a minute", slow)
		}
	})
}
