package redislease

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/idgen"
)

// These tests run several processes on one Redis. With SNOWGATE_TEST_LONG=1 each
// holder issues at least ten million ids, at the layout's limit; else fewer.
var long = os.Getenv("SNOWGATE_TEST_LONG") == "1"

// amount returns a number that depends on the mode.
func amount(short, longer int64) int64 {
	if long {
		return longer
	}
	return short
}

func holderJob(s store, address string, only int64) job {
	return job{
		URL: s.real.URL(), Address: address, Only: only,
		Lead: time.Second, Skew: 200 * time.Millisecond, TTL: 2 * time.Second,
		Heartbeat: 200 * time.Millisecond, Batch: int(amount(1000, 16000)),
	}
}

func processStore(t *testing.T) (store, idgen.Scheme) {
	s, sc := realStore(t), scheme(t, layoutA)
	settle(t, s, sc)
	return s, sc
}

// ceilingOf reads the ceiling of a record in Redis.
func ceilingOf(t *testing.T, s store, sc idgen.Scheme, number int64) int64 {
	t.Helper()
	parts := strings.Fields(s.real.Do("HGET", "{sg}:w", strconv.FormatInt(number, 10)))
	if len(parts) < 6 {
		t.Fatalf("record of worker %d is %q", number, parts)
	}
	unix, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return unix - sc.Epoch().UnixMilli()
}

func TestProcessStoppedPastItsLease(t *testing.T) {
	if !long {
		t.Parallel()
	}
	s, sc := processStore(t)
	enough := amount(100_000, 10_000_000)
	zombie := startHolder(t, holderJob(s, "a:1", 7))
	zombie.awaitMore(enough)
	zombie.signal(syscall.SIGSTOP)
	ceiling := ceilingOf(t, s, sc, 7)
	var successor *holder
	eventually(t, "the lease ends and the successor gets the number", func() bool {
		if successor == nil || successor.says("failed: ") {
			successor = startHolder(t, holderJob(s, "b:1", 7)) // fails while the lease lasts
		}
		return successor.issued() > 0
	})
	zombie.signal(syscall.SIGCONT)
	eventually(t, "the zombie finds out", func() bool { return zombie.says("event: lost") && zombie.says("refused: ") })
	successor.awaitMore(enough)
	zombie.end(syscall.SIGTERM)
	successor.end(syscall.SIGTERM)

	last, first := slices.Max(zombie.ids()), slices.Min(successor.ids())
	if ts := sc.Since(sc.Time(last)); ts > ceiling {
		t.Errorf("the zombie issued timestamp %d, its ceiling was %d", ts, ceiling)
	}
	if ts := sc.Since(sc.Time(first)); ts <= ceiling {
		t.Errorf("the successor issued timestamp %d, not above the ceiling %d", ts, ceiling)
	}
	wantUnique(t, zombie, successor)
}

func TestProcessesWhenRedisIsWiped(t *testing.T) {
	if !long {
		t.Parallel()
	}
	s, _ := processStore(t)
	share := amount(30_000, 3_500_000)
	a, b := startHolder(t, holderJob(s, "a:1", 1)), startHolder(t, holderJob(s, "b:1", -1))
	a.awaitMore(share)
	b.awaitMore(share)
	var rival *holder
	for range 3 {
		s.real.FlushAll()
		rival = startHolder(t, holderJob(s, "c:1", 1)) // wants the number of a
		a.awaitMore(share)
		b.awaitMore(share)
		eventually(t, "the rival is refused", func() bool { return rival.says(ErrTaken.Error()) })
	}
	for _, h := range []*holder{a, b} {
		h.end(syscall.SIGTERM)
		if h.says("refused: ") || h.says("event: lost") || strings.Count(h.output(), "event: reclaimed") != 3 {
			t.Errorf("a living holder was disturbed:\n%s", h.output())
		}
	}
	if rival.issued() != 0 {
		t.Errorf("the rival issued %d ids", rival.issued())
	}
	wantUnique(t, a, b)
}

func TestProcessesWhenRedisIsRestartedEmpty(t *testing.T) {
	if !long {
		t.Parallel()
	}
	s, _ := processStore(t)
	a := startHolder(t, holderJob(s, "a:1", 1))
	a.awaitMore(amount(50_000, 5_000_000))
	s.real.Kill()
	s.real.Restart()
	rival := startHolder(t, holderJob(s, "c:1", 1))
	eventually(t, "the holder re-claims", func() bool { return a.says("event: reclaimed") })
	eventually(t, "the rival is refused", func() bool { return rival.says(ErrTaken.Error()) })
	a.awaitMore(amount(50_000, 5_000_000))
	a.end(syscall.SIGTERM)
	if a.says("refused: ") {
		t.Errorf("the living holder refused:\n%s", a.output())
	}
	wantUnique(t, a)
}

func TestProcessKilledAndReplacedByOneWhoseClockIsBehind(t *testing.T) {
	if !long {
		t.Parallel()
	}
	s, sc := processStore(t)
	enough := amount(100_000, 10_000_000)
	old := startHolder(t, holderJob(s, "a:1", -1))
	old.awaitMore(enough)
	old.end(syscall.SIGKILL)
	ceiling := ceilingOf(t, s, sc, 0)
	j := holderJob(s, "a:1", -1)
	j.Own, j.Behind = true, 2*time.Second
	successor := startHolder(t, j)
	successor.awaitMore(enough)
	successor.end(syscall.SIGTERM)
	if first := slices.Min(successor.ids()); sc.Since(sc.Time(first)) <= ceiling {
		t.Errorf("the successor issued timestamp %d, the ceiling was %d", sc.Since(sc.Time(first)), ceiling)
	}
	wantUnique(t, old, successor)
}

func TestProcessKilledAndRestartedAgainAndAgain(t *testing.T) {
	if !long {
		t.Parallel()
	}
	s, sc := processStore(t)
	j := holderJob(s, "a:1", -1)
	j.Lead, j.Skew, j.Heartbeat = 100*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	var all []*holder
	for range amount(20, 100) {
		h := startHolder(t, j)
		h.awaitMore(amount(10_000, 100_000))
		h.end(syscall.SIGKILL)
		all = append(all, h)
		first := h.ids()[0]
		p, err := sc.Decompose(first)
		if err != nil || p.Worker != 0 {
			t.Fatalf("restart %d: worker %d, %v, want 0 every time", len(all), p.Worker, err)
		}
		if ahead := time.Until(p.Time); ahead > j.Lead {
			t.Errorf("restart %d: stamps are %v ahead", len(all), ahead)
		}
	}
	wantUnique(t, all...)
}
