package redislease

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "redis:6379", ContextTimeoutEnabled: true})
	scheme, err := idgen.NewScheme(idgen.LayoutDefault, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		panic(err)
	}
	source, err := New(rdb, PreferOctet(0, netip.MustParseAddr("172.18.0.7")), Options{
		Address: "172.18.0.7:8080",
		OnEvent: func(e Event) { println(e.Text) },
	})
	if err != nil {
		panic(err)
	}
	clock := NewClock(rdb, "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go clock.Run(ctx)
	generator, err := idgen.New(ctx, scheme, source, idgen.WithClock(clock), idgen.WithBackgroundStart())
	if err != nil {
		panic(err)
	}
	defer generator.Close(ctx)
	_, _ = generator.Next() // idgen.ErrNoWorker until the number is there
}

// generator starts a generator the way a gateway does.
func generator(t *testing.T, s store, src *Source) *idgen.Generator {
	t.Helper()
	return generatorOn(t, s.rdb, src)
}

func generatorOn(t *testing.T, rdb redis.Scripter, src *Source) *idgen.Generator {
	t.Helper()
	clock := NewClock(rdb, src.options.Prefix)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { defer close(stopped); clock.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-stopped })
	g, err := idgen.New(t.Context(), scheme(t, layoutA), src, idgen.WithClock(clock),
		idgen.WithHeartbeat(50*time.Millisecond), idgen.WithBackgroundStart())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	eventually(t, "ids are issued", func() bool { _, err := g.Next(); return err == nil })
	return g
}

func TestGeneratorTakesAnotherNumberWhenItsOwnIsStolen(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc := scheme(t, layoutA)
		settle(t, s, sc)
		var log events
		o := roomy("a")
		o.OnEvent = log.add
		g := generator(t, s, source(t, s.rdb, Any(), o))
		if w := g.Health().Worker.Number; w != 0 {
			t.Fatalf("worker %d, want 0", w)
		}
		expire(t, s, "0")
		thief := source(t, s.rdb, Only(idgen.Worker{}), roomy("b"))
		got := make(chan error, 1)
		go func() {
			_, err := thief.Acquire(t.Context(), sc, now(sc))
			got <- err
		}()
		stolen := time.Now()
		eventually(t, "another number", func() bool {
			if _, err := g.Next(); err != nil {
				t.Fatalf("a call was refused: %v", err)
			}
			return g.Health().Worker.Number == 1
		})
		if took := time.Since(stolen); took > 10*time.Second {
			t.Errorf("another number after %v, want 10 s at most", took)
		}
		if _, ok := log.find(EventLost); !ok {
			t.Error("the loss was not reported")
		}
		if err := <-got; err != nil {
			t.Errorf("the thief: %v", err)
		}
	})
}

func TestGeneratorWhileRedisIsAway(t *testing.T) {
	s, sc := realStore(t), scheme(t, layoutA)
	settle(t, s, sc)
	g := generator(t, s, source(t, s.rdb, Any(), quick("a")))
	before := g.Health().Worker
	s.real.Freeze()
	frozen := time.Now()
	eventually(t, "the ceiling is reached", func() bool {
		_, err := g.Next()
		if err != nil && !errors.Is(err, idgen.ErrCeiling) {
			t.Fatalf("Next() = %v, want ErrCeiling", err)
		}
		return err != nil
	})
	if took := time.Since(frozen); took > 2*time.Second {
		t.Errorf("ids were issued for %v without Redis, the lead is 300 ms", took)
	}
	s.real.Resume()
	back := time.Now()
	eventually(t, "ids are issued again", func() bool { _, err := g.Next(); return err == nil })
	t.Logf("issuing %v after Redis came back", time.Since(back))
	if w := g.Health().Worker; w != before {
		t.Errorf("worker %v, want still %v", w, before)
	}
}

func BenchmarkExtend(b *testing.B) {
	s, sc := realStore(b), scheme(b, layoutA)
	settle(b, s, sc)
	l := acquire(b, source(b, s.rdb, Any(), quick("a")), sc)
	for b.Loop() {
		extend(b, l, sc)
	}
}
