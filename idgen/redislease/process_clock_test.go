package redislease

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens/tokenstest/redistest"
)

const day = 24 * time.Hour

// wantRising fails the test unless each id of h is greater than the one before.
func wantRising(t *testing.T, h *holder) {
	t.Helper()
	ids := h.ids()
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			t.Errorf("id %d came after %d", ids[i], ids[i-1])
			return
		}
	}
}

// step has h take the next step of its clock, and waits for it.
func (h *holder) step(n int) {
	h.t.Helper()
	h.signal(syscall.SIGUSR1)
	eventually(h.t, "the clock is set", func() bool { return strings.Count(h.output(), "stepped: ") == n })
}

// TestProcessWhoseClockSteps: a holder has a lease in Redis and a clock that does not follow Redis.
// It continues after steps back. After a step forward it issues ids up to its ceiling, and stops
// until the clock is correct again. Then it is killed while its clock is a day behind, and started
// again.
func TestProcessWhoseClockSteps(t *testing.T) {
	if !long {
		t.Parallel()
	}
	s, sc := processStore(t)
	share := amount(20_000, 2_500_000)
	j := holderJob(s, "a:1", -1)
	j.Own, j.Steps = true, []time.Duration{-time.Hour, 2 * time.Hour, -time.Hour, -day}
	old := startHolder(t, j)
	old.awaitMore(share)
	old.step(1) // an hour behind
	old.awaitMore(share)
	if old.says("refused: ") {
		t.Errorf("refused when the clock stepped back:\n%s", old.output())
	}
	old.step(2) // an hour ahead
	eventually(t, "the ceiling is reached", func() bool { return old.says("refused: " + idgen.ErrCeiling.Error()) })
	old.step(3) // right
	old.awaitMore(share)
	old.step(4) // a day behind
	old.awaitMore(share)
	old.end(syscall.SIGKILL)
	ceiling := ceilingOf(t, s, sc, 0)
	if ts := sc.Since(sc.Time(slices.Max(old.ids()))); ts > ceiling {
		t.Errorf("timestamp %d was issued, above the ceiling %d", ts, ceiling)
	}

	j.Steps = nil
	successor := startHolder(t, j)
	successor.awaitMore(share)
	successor.end(syscall.SIGTERM)
	if ts := sc.Since(sc.Time(slices.Min(successor.ids()))); ts <= ceiling {
		t.Errorf("the successor issued timestamp %d, the ceiling was %d", ts, ceiling)
	}
	wantRising(t, old)
	wantRising(t, successor)
	wantUnique(t, old, successor)
}

// TestProcessesWhoseClockIsFarOff: a gateway whose clock differs by more than 5 s gets no number,
// so that it issues no ids with a wrong time.
func TestProcessesWhoseClockIsFarOff(t *testing.T) {
	t.Parallel()
	s, _ := processStore(t)
	for _, behind := range []time.Duration{time.Hour, -time.Hour, day, -day} {
		j := holderJob(s, "a:1", -1)
		j.Own, j.Behind = true, behind
		h := startHolder(t, j)
		eventually(t, "the holder is refused", func() bool { return h.says("failed: ") })
		if !h.says("no worker number is taken") || h.issued() != 0 {
			t.Errorf("a clock that is %v behind: %d ids and\n%s", behind, h.issued(), h.output())
		}
	}
}

// TestProcessKilledAndRestartedWithAnotherClock: without Redis, the ceiling is in a file. After
// each start, ids are greater than all that were issued before, whatever the clock shows.
func TestProcessKilledAndRestartedWithAnotherClock(t *testing.T) {
	if !long {
		t.Parallel()
	}
	j := job{Only: 7, Batch: int(amount(1000, 16000)), StateFile: filepath.Join(t.TempDir(), "state")}
	var all []*holder
	last := idgen.ID(0)
	for _, behind := range []time.Duration{0, time.Hour, -time.Hour, day, 2 * time.Second, 0} {
		j.Behind = behind
		h := startHolder(t, j)
		h.awaitMore(amount(20_000, 2_000_000))
		h.end(syscall.SIGKILL)
		ids := h.ids()
		if ids[0] <= last {
			t.Errorf("with a clock that is %v behind the first id is %d, the last one before was %d", behind, ids[0], last)
		}
		last = slices.Max(ids)
		wantRising(t, h)
		all = append(all, h)
	}
	wantUnique(t, all...)
}

// TestProcessesWhenTheClockOfRedisSteps: two holders that follow it. It takes
// half a minute, so only the short steps are taken without SNOWGATE_TEST_LONG=1:
// the integration tests have the others, over HTTP.
func TestProcessesWhenTheClockOfRedisSteps(t *testing.T) {
	if !long {
		t.Parallel()
	}
	server := redistest.StartWithClock(t)
	s := store{rdb: connect(t, server.URL()), real: server}
	settle(t, s, scheme(t, layoutA))
	share := amount(20_000, 2_500_000)
	j := holderJob(s, "a:1", 1)
	j.TTL, j.Lead, j.Heartbeat = time.Minute, 2*time.Second, 100*time.Millisecond
	rival := j
	rival.Address, rival.Only = "b:1", -1
	both := []*holder{startHolder(t, j), startHolder(t, rival)}
	each := func(f func(*holder)) {
		for _, h := range both {
			f(h)
		}
	}
	each(func(h *holder) { h.awaitMore(share) })
	steps := []time.Duration{200 * time.Millisecond, -200 * time.Millisecond, -1500 * time.Millisecond}
	if long {
		steps = append(steps, time.Hour, day, -time.Second)
	}
	for _, by := range steps {
		server.StepClock(by)
		refusals := func(h *holder) int { return strings.Count(h.output(), "refused: ") }
		if by > limit { // a step back is ridden through
			before := []int{refusals(both[0]), refusals(both[1])}
			for i, h := range both {
				eventually(t, "issuing is refused", func() bool { return refusals(h) > before[i] })
			}
		}
		each(func(h *holder) { h.awaitMore(share) })
	}
	each(func(h *holder) {
		h.end(syscall.SIGTERM)
		wantRising(t, h)
		if h.says("event: lost") {
			t.Errorf("a number was lost:\n%s", h.output())
		}
	})
	wantUnique(t, both...)
}
