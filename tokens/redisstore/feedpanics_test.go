package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/internal/panics"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// faultyHook panics at the first command of a name.
type faultyHook struct {
	name  string
	armed atomic.Bool
}

func (h *faultyHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *faultyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == h.name && h.armed.CompareAndSwap(true, false) {
			panic("a fault of the test")
		}
		return next(ctx, cmd)
	}
}

func (h *faultyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestPanicsOfAFeed: whatever part of the feed panics, the feed continues, and later changes arrive
// as before.
func TestPanicsOfAFeed(t *testing.T) {
	store := open(t, redisstore.Options{URL: startEmbedded(t), Timeout: 2 * time.Second})
	beats := &faultyHook{name: "publish"}
	store.Client().AddHook(beats)
	rules := tokens.NewRules(tokens.RulesConfig{Store: store, Longest: time.Hour})
	var rule, push, report, lost atomic.Bool // what is to panic
	var heard, gaps, live atomic.Int64
	fault := func(due *atomic.Bool) {
		if due.CompareAndSwap(true, false) {
			panic("a fault of the test")
		}
	}
	reported := make(chan error, 64)
	feed := store.Feed(redisstore.FeedConfig{
		Followers: map[string]redisstore.Follower{redisstore.PushRules: refresh(func(ctx context.Context) error {
			fault(&rule)
			return rules.Refresh(ctx)
		})},
		OnToken: func(idgen.ID) { fault(&push); heard.Add(1) },
		OnGap:   func() { gaps.Add(1) },
		OnSubscription: func(err error) {
			fault(&lost)
			if err == nil {
				live.Add(1)
			}
		},
		Report: func(err error) { fault(&report); reported <- err },
	})
	rule.Store(true)   // the first reading of the rules
	report.Store(true) // and what is said of it
	wantPanic := countFeedPanics(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { feed.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	eventually(t, "the feed is not ready", func() bool { return feed.Ready() && live.Load() == 1 })
	wantPanic("a follower", 2)

	before, missed, lives := panics.Count(panics.Feed), gaps.Load(), live.Load()
	push.Store(true)
	lost.Store(true) // and what is told of the subscription that ends
	if err := store.Client().Publish(t.Context(), "{sg}:push", "token "+idgen.ID(7).String()+" 1700000000000").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no new subscription after a panic", func() bool { return live.Load() > lives && gaps.Load() > missed })
	if got := panics.Count(panics.Feed) - before; got != 2 {
		t.Errorf("%d panics of the subscription were counted, want 2", got)
	}

	before = panics.Count(panics.Redis)
	beats.armed.Store(true)
	eventually(t, "no panic of a beat was counted", func() bool { return panics.Count(panics.Redis) == before+1 })
	if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rule is not known", func() bool { return len(rules.Set().Rules) == 1 })
	if err := store.Delete(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the push is not heard", func() bool { return heard.Load() > 0 })
}

// countFeedPanics returns a function that checks how many panics of the feed were told, each with a
// stack, and counted.
func countFeedPanics(t *testing.T) (wantPanics func(what string, want int)) {
	t.Helper()
	panics.Forget()
	before := panics.Count(panics.Feed)
	var mu sync.Mutex
	var stacks []string
	panics.Notify(func(p *panics.Panic) {
		mu.Lock()
		defer mu.Unlock()
		stacks = append(stacks, p.Stack)
	})
	return func(what string, want int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if got := panics.Count(panics.Feed) - before; got != uint64(want) || len(stacks) != want {
			t.Errorf("%s: %d panics counted, %d told, want %d", what, got, len(stacks), want)
		}
		for _, stack := range stacks {
			if !strings.Contains(stack, "TestPanicsOfAFeed") {
				t.Errorf("%s: the stack is %q", what, stack)
			}
		}
	}
}

// TestPanicOfARefresh: a caller that waits for a refresh that panics gets an error.
func TestPanicOfARefresh(t *testing.T) {
	store := open(t, redisstore.Options{URL: startEmbedded(t), Timeout: 2 * time.Second})
	failures := make(chan error, 64)
	var broken atomic.Bool
	broken.Store(true)
	feed := store.Feed(redisstore.FeedConfig{
		Followers: map[string]redisstore.Follower{
			redisstore.PushRules: refresh(func(context.Context) error {
				if broken.Load() {
					panic("a fault of the test")
				}
				return nil
			}),
			redisstore.PushKeys: refresh(func(context.Context) error { return nil }),
		},
		Report: func(err error) { failures <- err },
	})
	panics.Notify(func(*panics.Panic) {})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { feed.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	var p *panics.Panic
	if err := <-failures; !errors.As(err, &p) || feed.Ready() {
		t.Errorf("the feed reports %v and is ready: %t, want the panic", err, feed.Ready())
	}
	broken.Store(false)
	if err := <-failures; err != nil || !feed.Ready() {
		t.Errorf("afterwards the feed reports %v", err)
	}
}
