package redislease

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
)

func TestAnyGivesNumbersInOrderAndThenTheLongestFree(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc := scheme(t, layoutTiny)
		settle(t, s, sc)
		var leases []idgen.Lease
		for i, want := range []int64{0, 1, 2, 3} {
			l := acquire(t, source(t, s.rdb, Any(), quick("host"+strconv.Itoa(i)+":80")), sc)
			if got := l.Worker().Number; got != want {
				t.Fatalf("Acquire() #%d = worker %d, want %d", i, got, want)
			}
			leases = append(leases, l)
		}
		for _, n := range []int{2, 0, 3} { // the order in which they become free
			if err := leases[n].Release(t.Context(), now(sc)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the next millisecond", newMillisecond())
		}
		for _, want := range []int64{2, 0, 3} {
			l := acquire(t, source(t, s.rdb, Any(), quick("late"+strconv.FormatInt(want, 10)+":80")), sc)
			if got := l.Worker().Number; got != want {
				t.Errorf("Acquire() = worker %d, want %d, which has been free for longest", got, want)
			}
		}
	})
}

func newMillisecond() func() bool {
	start := time.Now()
	return func() bool { return time.Since(start) > time.Millisecond }
}

func TestSplitLayout(t *testing.T) {
	s := miniStore(t)
	sc := scheme(t, layoutB)
	settle(t, s, sc)
	for i := range 33 { // one more than a datacenter holds
		l := acquire(t, source(t, s.rdb, Any(), quick("a"+strconv.Itoa(i))), sc)
		want := idgen.Worker{Datacenter: int64(i / 32), Number: int64(i % 32)}
		if got := l.Worker(); got != want {
			t.Fatalf("Any() #%d = %+v, want %+v", i, got, want)
		}
	}
	l := acquire(t, source(t, s.rdb, AnyIn(7), quick("dc7")), sc)
	if got, want := l.Worker(), (idgen.Worker{Datacenter: 7}); got != want {
		t.Errorf("AnyIn(7) = %+v, want %+v", got, want)
	}
	l = acquire(t, source(t, s.rdb, Only(idgen.Worker{Datacenter: 31, Number: 31}), quick("last")), sc)
	if got, want := l.Worker(), (idgen.Worker{Datacenter: 31, Number: 31}); got != want {
		t.Errorf("Only(31/31) = %+v, want %+v", got, want)
	}
	_, err := source(t, s.rdb, AnyIn(32), quick("x")).Acquire(t.Context(), sc, now(sc))
	wantErr(t, err, idgen.ErrNoWorker, idgen.ErrFieldRange)
}

func TestOctets(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc := scheme(t, layoutA)
		settle(t, s, sc)
		first, second := netip.MustParseAddr("10.0.1.7"), netip.MustParseAddr("10.0.2.7")
		var log events
		take := func(addr netip.Addr, c Choice) (idgen.Lease, error) {
			o := quick(addr.String() + ":8080")
			o.OnEvent = log.add
			return source(t, s.rdb, c, o).Acquire(t.Context(), sc, now(sc))
		}
		l, err := take(first, PreferOctet(0, first))
		if err != nil || l.Worker().Number != 7 {
			t.Fatalf("PreferOctet(%v) = %v, %v, want worker 7", first, l, err)
		}
		if e, ok := log.find(EventConflict); ok {
			t.Errorf("a conflict is reported where there is none: %v", e)
		}
		l2, err := take(second, PreferOctet(0, second))
		if err != nil || l2.Worker().Number != 256 {
			t.Fatalf("PreferOctet(%v) = %v, %v, want worker 256, because 7 is taken", second, l2, err)
		}
		if e, ok := log.find(EventConflict); !ok || !strings.Contains(e.Text, "10.0.1.7:8080") {
			t.Errorf("conflict event = %v, want one that names 10.0.1.7:8080", e)
		}
		_, err = take(second, OnlyOctet(0, second))
		wantErr(t, err, idgen.ErrNoWorker, ErrTaken)
		if !strings.Contains(err.Error(), "10.0.1.7:8080") {
			t.Errorf("the error does not name the holder: %v", err)
		}
	})
}

func TestOctetWiderThanItsFieldIsRefused(t *testing.T) {
	sc := scheme(t, layoutB)
	for _, c := range []Choice{OnlyOctet(0, netip.MustParseAddr("10.0.0.32")), PreferOctet(0, netip.MustParseAddr("10.0.0.32")),
		OnlyOctet(0, netip.MustParseAddr("fd00::1"))} {
		_, err := source(t, miniStore(t).rdb, c, quick("x")).Acquire(t.Context(), sc, now(sc))
		wantErr(t, err, idgen.ErrNoWorker)
	}
}

func TestRegistry(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc := scheme(t, layoutTiny)
		settle(t, s, sc)
		take := func(address string) (idgen.Lease, error) {
			return source(t, s.rdb, Registered(), quick(address)).Acquire(t.Context(), sc, now(sc))
		}
		for _, c := range []struct {
			address string
			want    int64
		}{
			{"10.0.0.1", 1}, {"10.0.0.2", 2},
			{"10.0.0.1", 1}, // kept for ever
			{"10.0.0.3", 3},
			{"10.0.0.2", 2},
		} {
			l, err := take(c.address)
			if err != nil || l.Worker().Number != c.want {
				t.Fatalf("Registered at %s = %v, %v, want worker %d", c.address, l, err, c.want)
			}
			if err := l.Release(t.Context(), now(sc)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the next millisecond", newMillisecond())
		}
		_, err := take("10.0.0.4")
		wantErr(t, err, idgen.ErrNoWorker, ErrExhausted)
		if _, err := take("10.0.0.3"); err != nil {
			t.Errorf("an address with a number is refused after exhaustion: %v", err)
		}
	})
}

func TestRestartOnTheSameAddress(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc := scheme(t, layoutA)
		o := Options{Address: "10.0.0.9:8080", Lead: 20 * time.Millisecond, Skew: 5 * time.Millisecond}
		settle(t, s, sc)
		l := acquire(t, source(t, s.rdb, Any(), o), sc)
		want := l.Worker()
		for i := range 100 { // each predecessor is killed: it releases nothing
			next := acquire(t, source(t, s.rdb, Any(), o), sc)
			if next.Worker() != want || next.Floor() != l.Ceiling()+1 {
				t.Fatalf("restart %d: worker %v, floor %d, want worker %v, floor = ceiling + 1 = %d",
					i, next.Worker(), next.Floor(), want, l.Ceiling()+1)
			}
			if lead := next.Ceiling() - now(sc); next.Ceiling() < next.Floor() || lead > 20 {
				t.Fatalf("restart %d: ceiling %d ms ahead, floor %d, ceiling %d", i, lead, next.Floor(), next.Ceiling())
			}
			if _, err := l.Extend(t.Context(), now(sc)); !errors.Is(err, idgen.ErrLeaseLost) {
				t.Fatalf("restart %d: the predecessor could extend: %v", i, err)
			}
			l = next
		}
	})
}

// Two running gateways with the same address do not take the number from each other for ever: the
// earlier one moves to another number.
func TestOneAddressTwice(t *testing.T) {
	s := miniStore(t)
	sc, o := scheme(t, layoutA), quick("172.17.0.2:8080")
	settle(t, s, sc)
	first, second := source(t, s.rdb, Any(), o), source(t, s.rdb, Any(), o)
	a := acquire(t, first, sc)
	b := acquire(t, second, sc)
	_, err := a.Extend(t.Context(), now(sc))
	wantErr(t, err, idgen.ErrLeaseLost)
	a2 := acquire(t, first, sc)
	if a2.Worker() == b.Worker() {
		t.Fatalf("both have worker %v", a2.Worker())
	}
	extend(t, b, sc)
	extend(t, a2, sc)

	only := source(t, s.rdb, Only(b.Worker()), o)
	only.started = true // it had the number before
	_, err = only.Acquire(t.Context(), sc, now(sc))
	wantErr(t, err, ErrTaken)
}

func TestLeaseEndsAfterItsTTL(t *testing.T) {
	s := miniStore(t)
	sc, o := scheme(t, layoutA), quick("a")
	start := time.Now()
	s.mini.SetTime(start)
	settle2 := o
	settle2.SkipQuarantine = true
	seven := Only(idgen.Worker{Number: 7})
	acquire(t, source(t, s.rdb, seven, settle2), sc)
	other := o
	other.Address, other.SkipQuarantine = "b", true
	s.mini.SetTime(start.Add(59 * time.Second))
	_, err := source(t, s.rdb, seven, other).Acquire(t.Context(), sc, sc.Since(start.Add(59*time.Second)))
	wantErr(t, err, ErrTaken)
	s.mini.SetTime(start.Add(61 * time.Second))
	if _, err := source(t, s.rdb, seven, other).Acquire(t.Context(), sc, sc.Since(start.Add(61*time.Second))); err != nil {
		t.Errorf("the lease did not end: %v", err)
	}
}

func TestFullBacksOffTenTimesAndNamesTheCause(t *testing.T) {
	s := miniStore(t)
	sc := scheme(t, layoutTiny)
	o := quick("a")
	o.SkipQuarantine = true
	for i := range 4 {
		o.Address = "host" + strconv.Itoa(i)
		acquire(t, source(t, s.rdb, Any(), o), sc)
	}
	reply := rawReply(t, s, o, sc)
	if reply[0] != "full" {
		t.Fatalf("acquire.lua = %v, want full", reply)
	}
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		w := wiretap(rdb)
		w.fake = func(_ context.Context, cmd redis.Cmder) error {
			cmd.(*redis.Cmd).SetVal(slices.Clone(reply))
			return nil
		}
		src := source(t, rdb, Any(), o)
		start := time.Now()
		_, err := src.Acquire(t.Context(), sc, now(sc))
		wantErr(t, err, idgen.ErrNoWorker, ErrAllTaken)
		if took := time.Since(start); took < 4*time.Second || took > 10*time.Second {
			t.Errorf("gave up after %v, want 4 s to 10 s", took)
		}
		if got := w.trips.Load(); got != 10 {
			t.Errorf("asked %d times, want 10", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		_, err = src.Acquire(ctx, sc, now(sc))
		wantErr(t, err, ErrAllTaken, context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("gave up after %v, want the second that the context allows", took)
		}
	})
}

// rawReply returns the reply of acquire.lua to a new gateway.
func rawReply(t *testing.T, s store, o Options, sc idgen.Scheme) []any {
	t.Helper()
	o.Address = "newcomer"
	src := source(t, s.rdb, Any(), o)
	w := wiretap(s.rdb)
	var reply []any
	w.fake = nil
	src.nonce = newNonce()
	r, err := src.claim(t.Context(), sc, claim{wanted: -1, last: sc.Layout().Workers() - 1}, time.Now().UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	reply = []any{r.status, r.number, r.floor, r.ceiling, r.now, r.wait, r.text}
	return reply
}

func TestOneRoundTripWhateverIsTaken(t *testing.T) {
	s := realStore(t)
	sc := scheme(t, layoutA)
	settle(t, s, sc)
	for i := range 1023 {
		acquire(t, source(t, s.rdb, Any(), quick("h"+strconv.Itoa(i))), sc)
	}
	w := wiretap(s.rdb)
	var took []time.Duration
	for range 50 {
		src := source(t, s.rdb, Any(), quick("last"))
		before := w.trips.Load()
		start := time.Now()
		l := acquire(t, src, sc)
		took = append(took, time.Since(start))
		if trips := w.trips.Load() - before; trips != 1 {
			t.Fatalf("Acquire with 1023 of 1024 taken took %d round trips, want 1", trips)
		}
		if n := l.Worker().Number; n != 1023 {
			t.Fatalf("Acquire() = worker %d, want the only free one, 1023", n)
		}
		if err := l.Release(t.Context(), now(sc)-1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next millisecond", newMillisecond())
	}
	slices.Sort(took)
	t.Logf("acquire with 1023 of 1024 taken: median %v, fastest %v, slowest %v", took[25], took[0], took[49])
}

func TestOtherSchemeIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc := scheme(t, layoutA)
		settle(t, s, sc)
		l := acquire(t, source(t, s.rdb, Any(), quick("a")), sc)
		later, err := idgen.NewScheme(sc.Layout(), epoch.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []idgen.Scheme{later, scheme(t, layoutB)} {
			_, err := source(t, s.rdb, Any(), quick("b")).Acquire(t.Context(), other, now(other))
			var mismatch *SchemeError
			wantErr(t, err, idgen.ErrSchemeMismatch)
			if !errors.As(err, &mismatch) || mismatch.Recorded != sc.Fingerprint() || mismatch.Ours != other.Fingerprint() {
				t.Errorf("error = %#v, want a SchemeError with both fingerprints", err)
			}
		}
		extend(t, l, sc) // the holder does not notice
	})
}

func TestClockFarOffIsRefused(t *testing.T) {
	s := miniStore(t)
	sc := scheme(t, layoutA)
	for _, off := range []int64{-5500, 5500} {
		_, err := source(t, s.rdb, Any(), quick("a")).Acquire(t.Context(), sc, now(sc)+off)
		var e *OffsetError
		wantErr(t, err, idgen.ErrClock)
		if !errors.As(err, &e) || (e.Offset-time.Duration(off)*time.Millisecond).Abs() > 400*time.Millisecond {
			t.Errorf("error = %v, want an OffsetError of about %d ms", err, off)
		}
	}
}

func TestErrorsNameTheirCause(t *testing.T) {
	sc := scheme(t, layoutA)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer rdb.Close()
	src := source(t, rdb, Any(), quick("a"))
	_, err := src.Acquire(t.Context(), sc, now(sc))
	if err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "{sg}:w") {
		t.Errorf("error without Redis = %v", err)
	}
	if st := src.State(); st.Held || st.Errors != 1 || !errors.Is(st.LastError, err) {
		t.Errorf("state = %+v, want one error", st)
	}
	s := realStore(t)
	wrong := redis.NewClient(&redis.Options{Addr: s.real.Addr(), Password: "wrong", MaxRetries: -1})
	defer wrong.Close()
	_, err = source(t, wrong, Any(), quick("a")).Acquire(t.Context(), sc, now(sc))
	if err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("error with a wrong password = %v", err)
	}
}

func TestOptionsReportAllFaults(t *testing.T) {
	_, err := New(nil, Any(), Options{Prefix: "{a}", Lead: time.Second, Skew: 2 * time.Second})
	for _, want := range []string{"address", "prefix", "Skew"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want a fault about %s", err, want)
		}
	}
}
