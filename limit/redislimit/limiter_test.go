package redislimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/limit"
)

// TestBound lets traffic of all sorts come to several gateways and holds what
// passes against what is promised.
func TestBound(t *testing.T) {
	rates := []limit.Rate{{Count: 100, Per: time.Second}, {Count: 7, Per: time.Second}, {Count: 1, Per: time.Second}, {Count: 60, Per: time.Minute}}
	for _, rate := range rates {
		for _, gateways := range []int{1, 2, 3, 8} {
			for _, latency := range []time.Duration{300 * time.Microsecond, 10 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s/%d/%s", rate, gateways, latency), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testBound(t, rate, gateways, latency) })
				})
			}
		}
	}
}

func testBound(t *testing.T, rate limit.Rate, gateways int, latency time.Duration) {
	fake := newFake(latency)
	var nodes []*node
	var group sync.WaitGroup
	for i := range gateways {
		n := newNode(t, fake, Config{MaxWait: 10 * time.Second})
		nodes = append(nodes, n)
		for j := range 3 {
			random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			group.Go(func() {
				// Bursts without pause, quiet times, and trickles.
				for begin := time.Now(); time.Since(begin) < 8*rate.Per; {
					pause := rate.Per / time.Duration(1+random.IntN(20))
					for range random.IntN(rate.Count + 2) {
						n.ask(t, rate)
						time.Sleep(time.Duration(random.Int64N(int64(rate.Interval()))) / time.Duration(1+random.IntN(40)))
					}
					time.Sleep(pause)
				}
			})
		}
	}
	group.Wait()
	checkBound(t, nodes, rate, latency)
	for _, n := range nodes {
		if reasons := n.fellBack(); len(reasons) > 0 {
			t.Errorf("fell back: %q", reasons)
		}
	}
}

// TestAverageIsExact has more come to three gateways than may, for a minute: what
// passes is the rate, neither more nor less.
func TestAverageIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.Rate{Count: 100, Per: time.Second}
		fake := newFake(time.Millisecond)
		var nodes []*node
		var group sync.WaitGroup
		for range 3 {
			n := newNode(t, fake, Config{})
			nodes = append(nodes, n)
			group.Go(func() {
				for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(3 * time.Millisecond) {
					n.ask(t, rate)
				}
			})
		}
		group.Wait()
		passed := len(allPassed(nodes))
		if want := 100 + 60*100; passed < want-want/100 || passed > want+20 {
			t.Errorf("%d requests passed in a minute, want %d, 1 %% less, or 20 more", passed, want)
		}
		if settlements := fake.count(); settlements > passed/3 {
			t.Errorf("%d settlements for %d requests", settlements, passed)
		}
	})
}

// TestNothingIsLostForOneGateway: what other gateways might need is not set aside.
func TestNothingIsLostForOneGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.Rate{Count: 5, Per: time.Hour}
		fake := newFake(time.Millisecond)
		busy, other := newNode(t, fake, Config{}), newNode(t, fake, Config{})
		if n := busy.askMany(t, rate, 20); n != 5 {
			t.Errorf("%d requests passed at the gateway that is used, want 5", n)
		}
		// The other one knows nothing yet, lets one through, and then knows.
		if n := other.askMany(t, rate, 20); n > 1 {
			t.Errorf("%d more passed at the other gateway, want 1 at most", n)
		}
	})
}

// TestNobodyWaitsForRedis: at its rate a client never waits, however slow Redis
// is, and a settlement covers several requests.
func TestNobodyWaitsForRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.Rate{Count: 100, Per: time.Second}
		fake := newFake(20 * time.Millisecond)
		n := newNode(t, fake, Config{})
		for i := range 1000 {
			d, took := n.ask(t, rate)
			if !d.Allowed || took != 0 {
				t.Fatalf("request %d: %+v after %s, want it to pass at once", i, d, took)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if fake.count() > 250 {
			t.Errorf("%d settlements for 1000 requests, want at most 250", fake.count())
		}
	})
}

func TestRetryAfterIsHonest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		rate := limit.Rate{Count: 30, Per: time.Minute}
		n := newNode(t, newFake(time.Millisecond), Config{})
		for range 200 {
			d, _ := n.ask(t, rate)
			if d.Allowed {
				time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
				continue
			}
			if d.Remaining != 0 || d.RetryAfter <= 0 {
				t.Fatalf("refused with %+v", d)
			}
			time.Sleep(d.RetryAfter)
			if d, _ := n.ask(t, rate); !d.Allowed {
				t.Fatalf("refused again after the wait it asked for: %+v", d)
			}
		}
	})
}

func TestWithoutRate(t *testing.T) {
	n := newNode(t, nil, Config{})
	if d := n.Allow(t.Context(), "worker", limit.Rate{}); d != (limit.Decision{Allowed: true}) {
		t.Errorf("Allow() = %+v, want no limit", d)
	}
}

// TestSilentRedis: one request waits, for MaxWait; the rest go by the copy,
// which applies the rate; and when Redis is back, it is asked again.
func TestSilentRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.Rate{Count: 100, Per: time.Second}
		fake := newFake(time.Millisecond)
		fake.set(true, nil)
		n := newNode(t, fake, Config{})
		passed, waited := 0, time.Duration(0)
		for range 200 {
			d, took := n.ask(t, rate)
			if d.Allowed {
				passed++
			}
			waited += took
		}
		if passed < 100 || passed > 103 {
			t.Errorf("%d of 200 passed, want the 100 of the burst and 3 for the wait", passed)
		}
		if waited != DefaultMaxWait {
			t.Errorf("requests waited %s in all, want %s", waited, DefaultMaxWait)
		}
		time.Sleep(DefaultTimeout)
		if got := fmt.Sprint(n.fellBack()); got != "[slow error]" {
			t.Errorf("fallbacks %s, want [slow error]", got)
		}

		fake.set(false, nil)
		time.Sleep(DefaultPause)
		n.ask(t, rate)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if charged := fake.sum(); charged != rate.Interval() {
			t.Errorf("charged %s, want one interval: what was let through meanwhile is not charged late", charged)
		}
		if more := n.askMany(t, rate, 200); more > 100 {
			t.Errorf("%d passed afterwards, want at most 100", more)
		}
		checkBound(t, []*node{n}, rate, time.Millisecond)
	})
}

// TestBrokenRedis: errors cost nobody a wait, and Redis is tried once per pause.
func TestBrokenRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.Rate{Count: 10, Per: time.Second}
		fake := newFake(0)
		fake.set(false, errRefused)
		n := newNode(t, fake, Config{})
		for range 500 {
			if _, took := n.ask(t, rate); took != 0 {
				t.Fatalf("a request waited %s", took)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if calls := fake.count(); calls < 4 || calls > 6 {
			t.Errorf("Redis was tried %d times in 5 s, want about once a second", calls)
		}
		if len(n.fellBack()) != fake.count() {
			t.Errorf("%d fallbacks for %d failures", len(n.fellBack()), fake.count())
		}
		checkBound(t, []*node{n}, rate, 0)

		fake.set(false, nil)
		time.Sleep(DefaultPause)
		other := newNode(t, fake, Config{})
		n.askMany(t, rate, 20)
		time.Sleep(time.Millisecond)
		if more := other.askMany(t, rate, 20); more > 1 {
			t.Errorf("%d passed at another gateway after the recovery, want 1 at most", more)
		}
	})
}

// TestSlowRedis: responses that take longer than MaxWait help nobody who
// waits, so nobody does after the first.
func TestSlowRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.Rate{Count: 100, Per: time.Second}
		n := newNode(t, newFake(200*time.Millisecond), Config{})
		waited := time.Duration(0)
		for range 3000 {
			_, took := n.ask(t, rate)
			waited += took
			time.Sleep(time.Millisecond)
		}
		if waited > DefaultMaxWait {
			t.Errorf("requests waited %s in all, want at most %s", waited, DefaultMaxWait)
		}
		checkBound(t, []*node{n}, rate, 0)
	})
}

// TestCallerGone: a caller that goes away does not wait to the end.
func TestCallerGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.Rate{Count: 1, Per: time.Second}
		fake := newFake(time.Millisecond)
		fake.set(true, nil)
		n := newNode(t, fake, Config{MaxWait: time.Hour, Timeout: time.Hour})
		n.ask(t, limit.Rate{Count: 1, Per: time.Second})
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begin := time.Now()
		if d := n.Allow(ctx, "worker", rate); !d.Allowed || time.Since(begin) != time.Millisecond {
			t.Errorf("Allow() = %+v after %s, want it to pass after 1ms", d, time.Since(begin))
		}
	})
}

// TestRateChanges: a limit that was exhausted does not outlive a larger one.
func TestRateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(time.Millisecond)
		n := newNode(t, fake, Config{})
		n.askMany(t, limit.Rate{Count: 2, Per: 24 * time.Hour}, 5)
		rate := limit.Rate{Count: 100, Per: time.Second}
		for range 10 { // Redis still has the old one
			n.ask(t, rate)
			time.Sleep(300 * time.Millisecond)
		}
		if d, _ := n.ask(t, rate); !d.Allowed {
			t.Errorf("refused under the new rate: %+v", d)
		}
	})
}

// TestMemoryFollows: many clients, one after the other, are not as many accounts.
func TestMemoryFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(0)
		fake.set(false, errRefused)
		n := newNode(t, fake, Config{Pause: time.Millisecond})
		rate := limit.Rate{Count: 1, Per: time.Second}
		most := 0
		for i := range 20_000 {
			n.Allow(t.Context(), fmt.Sprint("client", i), rate)
			time.Sleep(time.Millisecond) // 1000 clients a second, each of interest for a second
			if i%1000 == 0 {
				most = max(most, n.accounts())
			}
		}
		if most > 2500 {
			t.Errorf("%d accounts, want about 1000", most)
		}
	})
}

func (l *Limiter) accounts() int {
	n := 0
	for i := range l.shards {
		l.shards[i].Lock()
		n += len(l.shards[i].accounts)
		l.shards[i].Unlock()
	}
	return n
}

// TestClose: nothing is sent any more, and decisions go on.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(time.Millisecond)
		fake.set(true, nil)
		n := newNode(t, fake, Config{Timeout: time.Hour})
		rate := limit.Rate{Count: 10, Per: time.Second}
		n.ask(t, rate)
		synctest.Wait()
		n.Close()
		calls := fake.count()
		if passed := n.askMany(t, rate, 20); passed != 9 {
			t.Errorf("%d passed after Close, want 9", passed)
		}
		if fake.count() != calls {
			t.Error("Redis was asked after Close")
		}
		if len(n.fellBack()) != 0 {
			t.Errorf("fallbacks %q: closing is none", n.fellBack())
		}
	})
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	n := newNode(t, nil, Config{})
	n.Close() // no settlement, which is what may allocate
	rate := limit.Rate{Count: limit.MaxCount, Per: time.Second}
	ctx := t.Context()
	n.Allow(ctx, "worker", rate)
	if allocations := testing.AllocsPerRun(100, func() { n.Allow(ctx, "worker", rate) }); allocations != 0 {
		t.Errorf("%v allocations, want none", allocations)
	}
}

func BenchmarkAllow(b *testing.B) {
	l := New(Config{})
	l.Close()
	rate := limit.Rate{Count: limit.MaxCount, Per: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		l.Allow(b.Context(), "orders-worker", rate)
	}
}
