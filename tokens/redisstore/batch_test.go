package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// slowServer is a server that replies to GET and MGET with the keys, one round trip after the other
// when the test asks for it, and records the number of keys of each.
type slowServer struct {
	roundTrip time.Duration

	mu    sync.Mutex
	trips []int
	names []string // of the commands of the last one
	open  int      // round trips under way
	most  int      // of them at once
	lost  error
}

func (s *slowServer) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody dials") }
}

func (s *slowServer) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = s.answer(ctx, []redis.Cmder{cmd})
		return cmd.Err()
	}
}

func (s *slowServer) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return s.answer
}

func (s *slowServer) answer(ctx context.Context, cmds []redis.Cmder) error {
	s.mu.Lock()
	s.trips = append(s.trips, countKeys(cmds))
	s.names = nil
	for _, cmd := range cmds {
		s.names = append(s.names, cmd.Name())
	}
	s.open++
	s.most = max(s.most, s.open)
	lost := s.lost
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}()
	select {
	case <-time.After(s.roundTrip):
	case <-ctx.Done():
		lost = ctx.Err()
	}
	for _, cmd := range cmds {
		if lost != nil {
			cmd.SetErr(lost)
			continue
		}
		switch cmd := cmd.(type) {
		case *redis.StringCmd:
			if value, ok := valueOf(cmd.Args()[1].(string)).(string); ok {
				cmd.SetVal(value)
			} else {
				cmd.SetErr(redis.Nil)
			}
		case *redis.SliceCmd:
			var values []any
			for _, key := range cmd.Args()[1:] {
				values = append(values, valueOf(*key.(*string)))
			}
			cmd.SetVal(values)
		}
	}
	return lost
}

func countKeys(cmds []redis.Cmder) (n int) {
	for _, cmd := range cmds {
		n += len(cmd.Args()) - 1
	}
	return n
}

// valueOf is what the server has at key, nil if it has nothing.
func valueOf(key string) any {
	if key == "missing" {
		return nil
	}
	return "value of " + key
}

// batcher returns a batcher for s, behind the given hooks.
func (s *slowServer) batcher(t *testing.T, hooks ...redis.Hook) *batcher {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	for _, hook := range append(hooks, s) {
		client.AddHook(hook)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &batcher{client: client, timeout: 250 * time.Millisecond}
}

// wantIdle checks that nothing is left when all commands have ended.
func (b *batcher) wantIdle(t *testing.T) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since != [lanes]time.Time{} || len(b.waiting) != 0 {
		t.Errorf("lanes are taken since %v and %d commands wait when all is quiet", b.since, len(b.waiting))
	}
}

func TestCommandsShareRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: time.Millisecond}
		b := s.batcher(t)
		begin := time.Now()
		var asking sync.WaitGroup
		const commands = 32
		for i := range commands {
			asking.Go(func() {
				key := fmt.Sprint("key-", i)
				if got, err := b.get(t.Context(), key); err != nil || got != "value of "+key {
					t.Errorf("get(%s) = %q, %v", key, got, err)
				}
			})
		}
		asking.Wait()
		if took := time.Since(begin); took > 2*s.roundTrip {
			t.Errorf("%d commands took %s, want two round trips at most", commands, took)
		}
		if sent := sum(s.trips); sent != commands || len(s.trips) > lanes+1 {
			t.Errorf("round trips of %d commands, want %d at most, of %d together", s.trips, lanes+1, commands)
		}
		b.wantIdle(t)
	})
}

// Commands that come in one turn of the scheduler go in one round trip, though there were
// lanes for the first of them. A busy machine may cut a turn short, but not every time.
func TestCommandsOfOneTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const commands, attempts = 14, 20
	var took time.Duration
	var trips []int
	for range attempts {
		synctest.Test(t, func(t *testing.T) {
			s := slowServer{roundTrip: time.Millisecond}
			b := s.batcher(t)
			begin := time.Now()
			var asking sync.WaitGroup
			for i := range commands {
				asking.Go(func() {
					if _, err := b.get(t.Context(), fmt.Sprint("key-", i)); err != nil {
						t.Errorf("get: %v", err)
					}
				})
			}
			asking.Wait()
			took, trips = time.Since(begin), s.trips
			b.wantIdle(t)
		})
		if took == time.Millisecond && sum(trips) == commands && len(trips) <= lanes {
			return
		}
	}
	t.Errorf("%d commands took %s and round trips of %d, want one round trip of time and %d at most", commands, took, trips, lanes)
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// While a reply is not late, later commands wait for it. A late reply delays no command.
func TestLateResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: 100 * time.Millisecond}
		b := s.batcher(t)
		var asking sync.WaitGroup
		ask := func() {
			asking.Go(func() {
				if _, err := b.get(t.Context(), "key"); err != nil {
					t.Errorf("get: %v", err)
				}
			})
			synctest.Wait()
		}
		for _, step := range []struct {
			after time.Duration
			trips []int
		}{
			{0, []int{1}},
			{late - 1, []int{1}},           // waits
			{1, []int{1, 2}},               // and goes with the next, beside what is late
			{late, []int{1, 2, 1}},         // nor is a third, beside two
			{time.Hour, []int{1, 2, 1, 1}}, // another one, much later
		} {
			time.Sleep(step.after)
			ask()
			s.mu.Lock()
			if !slices.Equal(s.trips, step.trips) {
				t.Errorf("round trips of %d commands, want %d", s.trips, step.trips)
			}
			s.mu.Unlock()
		}
		asking.Wait()
		b.wantIdle(t)
	})
}

// TestFarAway: with replies that are always late, no command waits for the reply to another one until
// all lanes are taken, even if nobody asks after it.
func TestFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: 100 * time.Millisecond}
		b := s.batcher(t)
		var asking sync.WaitGroup
		for i := range 3 * lanes {
			asking.Go(func() {
				begin := time.Now()
				if _, err := b.get(t.Context(), "key"); err != nil {
					t.Errorf("get: %v", err)
				}
				if took := time.Since(begin); i < lanes && took > s.roundTrip+2*late || took > 2*s.roundTrip {
					t.Errorf("command %d took %v, with a round trip of %v", i, took, s.roundTrip)
				}
			})
			synctest.Wait()
			time.Sleep(2 * late / 3)
		}
		asking.Wait()
		b.wantIdle(t)
		if sum(s.trips) != 3*lanes || len(s.trips) > 3*lanes/2+2 {
			t.Errorf("round trips of %d commands, want %d in fewer than half as many", s.trips, 3*lanes)
		}
	})
}

// A lone command is sent as without a batcher.
func TestOneCommandAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: time.Millisecond}
		b := s.batcher(t)
		for range 3 {
			begin := time.Now()
			if _, err := b.get(t.Context(), "key"); err != nil || time.Since(begin) != s.roundTrip {
				t.Errorf("get: %v after %s", err, time.Since(begin))
			}
		}
		if want := []int{1, 1, 1}; !slices.Equal(s.trips, want) {
			t.Errorf("round trips of %d commands, want %d", s.trips, want)
		}
	})
}

// All reads of values at the same time are one MGET, beside any other commands.
func TestValuesAreOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: time.Millisecond}
		b := s.batcher(t)
		var asking sync.WaitGroup
		get := func(key, want string, wantErr error) {
			asking.Go(func() {
				if value, err := b.get(t.Context(), key); value != want || err != wantErr {
					t.Errorf("get(%s) = %q, %v, want %q, %v", key, value, err, want, wantErr)
				}
			})
		}
		getex := func(key, want string, wantErr error) {
			asking.Go(func() {
				cmd := redis.NewStringCmd(t.Context(), "getex", key)
				if err := b.process(t.Context(), cmd); cmd.Val() != want || err != wantErr {
					t.Errorf("process(getex %s) = %q, %v, want %q, %v", key, cmd.Val(), err, want, wantErr)
				}
			})
		}
		for _, trip := range []struct {
			ask  func()
			want []string
		}{
			{func() { get("a", "value of a", nil); get("missing", "", redis.Nil); get("b", "value of b", nil) }, []string{"mget"}},
			{func() { getex("a", "value of a", nil); getex("missing", "", redis.Nil) }, []string{"getex", "getex"}},
			{func() { getex("a", "value of a", nil); get("b", "value of b", nil); getex("c", "value of c", nil) }, []string{"mget", "getex", "getex"}},
		} {
			get("first", "value of first", nil)
			synctest.Wait()
			trip.ask()
			asking.Wait()
			if !slices.Equal(s.names, trip.want) {
				t.Errorf("a round trip of %q, want %q", s.names, trip.want)
			}
		}
		b.wantIdle(t)
	})
}

// An invalid reply, or one with too few values, gives no caller a value.
func TestValueAt(t *testing.T) {
	refused := errors.New("refused")
	values := redis.NewSliceCmd(t.Context(), "mget")
	values.SetVal([]any{"text", nil, refused, int64(7)})
	for i, want := range []struct {
		value string
		err   error // of any kind, if it is errors.ErrUnsupported
	}{
		{"text", nil}, {"", redis.Nil}, {"", refused}, {"", errors.ErrUnsupported}, {"", errors.ErrUnsupported},
	} {
		value, err := valueAt(values, i)
		if value != want.value || want.err != errors.ErrUnsupported && err != want.err || (err == nil) != (want.err == nil) {
			t.Errorf("value %d = %q, %v, want %q, %v", i, value, err, want.value, want.err)
		}
	}
	values.SetErr(refused)
	if value, err := valueAt(values, 0); value != "" || err != refused {
		t.Errorf("a value of a command that failed = %q, %v, want %v", value, err, refused)
	}
}

// An error of one command does not affect the others.
func TestErrorsOfOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: time.Millisecond}
		b := s.batcher(t)
		var asking sync.WaitGroup
		for i := range 20 {
			asking.Go(func() {
				key, want := "there", error(nil)
				if i%2 == 0 {
					key, want = "missing", redis.Nil
				}
				if _, err := b.get(t.Context(), key); err != want {
					t.Errorf("get(%s) = %v, want %v", key, err, want)
				}
			})
		}
		asking.Wait()
	})
}

// No caller waits longer than its context, whatever the server does, and a command without a caller
// is not sent.
func TestPatienceOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: time.Hour}
		b := s.batcher(t)
		var asking sync.WaitGroup
		for i := range 10 {
			asking.Go(func() {
				patience := time.Duration(i+1) * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				begin := time.Now()
				_, err := b.get(ctx, "key")
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != patience {
					t.Errorf("get = %v after %s, want the deadline after %s", err, time.Since(begin), patience)
				}
			})
		}
		asking.Wait()
		synctest.Wait()
		time.Sleep(time.Second) // batches that are under way end
		if s.most > lanes {
			t.Errorf("%d round trips at once, want %d at most", s.most, lanes)
		}
		if n := len(s.trips); n > lanes+2 {
			t.Errorf("%d round trips, of %d commands", n, s.trips)
		}
		b.wantIdle(t)
	})
}

// A batch that fails frees its lane like any other.
func TestFailedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: time.Millisecond, lost: errors.New("connection reset")}
		b := s.batcher(t)
		var asking sync.WaitGroup
		for range 10 {
			asking.Go(func() {
				if _, err := b.get(t.Context(), "key"); !errors.Is(err, s.lost) {
					t.Errorf("get = %v, want %v", err, s.lost)
				}
			})
		}
		asking.Wait()
		s.lost = nil
		if _, err := b.get(t.Context(), "key"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A command whose callers have all left is not sent.
func TestNothingIsSentForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowServer{roundTrip: 100 * time.Millisecond}
		b := s.batcher(t)
		var asking sync.WaitGroup
		for i := range lanes + 5 {
			asking.Go(func() {
				ctx := t.Context()
				if i >= lanes {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, late/2)
					defer cancel()
				}
				_, _ = b.get(ctx, "key")
			})
			synctest.Wait()
		}
		asking.Wait()
		b.wantIdle(t)
		if want := []int{1, lanes - 1}; !slices.Equal(s.trips, want) {
			t.Errorf("round trips of %d commands, want %d", s.trips, want)
		}
	})
}
