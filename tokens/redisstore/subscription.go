package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

const (
	// beatTick is how often a subscription is looked after; a beat is sent every
	// beatTicks of them, and one that is not answered within as many is the end.
	// Counting ticks instead of reading a clock, a gateway that was stopped for a
	// while looks at what has come in meanwhile before it judges.
	beatTick  = 250 * time.Millisecond
	beatTicks = 4
	// echoEvery is how many beats of a cluster there are to one that goes through
	// all its nodes.
	echoEvery = 10

	resubscribeFirst = 50 * time.Millisecond // back-off after a subscription was lost
	resubscribeMost  = time.Second           // its limit
)

var (
	errSilent     = errors.New("the subscription has gone silent")
	errGoneAstray = errors.New("the subscription has gone astray")
)

// subscribe keeps a subscription until ctx ends.
func (f *Feed) subscribe(ctx context.Context) {
	back := resubscribeFirst
	var said bool // that there is none
	for ctx.Err() == nil {
		s := newSubscription(f)
		err := s.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.live || !said {
			f.cfg.OnSubscription(err)
			said = true
		}
		if s.live {
			back = resubscribeFirst
		}
		if deadline.Sleep(ctx, back/2+mathrand.N(back)) != nil { //nolint:gosec // it keeps gateways out of step
			return
		}
		back = min(2*back, resubscribeMost)
	}
}

// subscription is one connection on which messages come. go-redis would make
// another by itself and say nothing; here, an error of any kind is the end of it.
//
// It reads without a deadline: one that passes in the middle of a message leaves
// the rest of it to be taken for something else. Instead, its beats find out
// whether messages come through: each is published on a channel of its own and
// must come back. Unlike a PING of the connection, they also find out that
// this is not the server any more that everybody else publishes at. In a cluster,
// where each costs a message between all nodes, most beats are a PING.
type subscription struct {
	feed    *Feed
	pubsub  *redis.PubSub
	channel string // of its beats
	live    bool   // subscribed
	cluster bool

	sent     uint64 // number of the last beat; known to watch only
	answered atomic.Uint64
}

func newSubscription(f *Feed) *subscription {
	_, cluster := f.store.client.(*redis.ClusterClient)
	return &subscription{feed: f, channel: f.store.pushChannel() + ":" + rand.Text(), cluster: cluster}
}

// run subscribes and acts on messages until there is a reason to end.
func (s *subscription) run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	s.pubsub = s.feed.store.client.Subscribe(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer panics.Catch(panics.Feed, func(err error) {
			end(err)
			_ = s.pubsub.Close()
		})
		end(s.watch(ctx))
		_ = s.pubsub.Close() // ends Receive; what is wrong with it is known
	})
	end(s.receive(ctx))
	wg.Wait()
	return context.Cause(ctx)
}

// receive acts on messages until there is an error.
func (s *subscription) receive(ctx context.Context) (err error) {
	defer panics.Into(panics.Feed, &err)
	if err := s.pubsub.Subscribe(ctx, s.feed.store.pushChannel(), s.channel); err != nil {
		return fmt.Errorf("redisstore: cannot subscribe: %w", err)
	}
	for {
		message, err := s.next(ctx)
		if err != nil {
			return fmt.Errorf("redisstore: the subscription was lost: %w", err)
		}
		if err := s.take(message); err != nil {
			return err
		}
	}
}

// next reads one message. go-redis panics on some replies that no Redis sends,
// and whatever is between it and us might.
func (s *subscription) next(ctx context.Context) (message any, err error) {
	defer func() {
		if p, panicked := errors.AsType[*panics.Panic](err); panicked {
			err = fmt.Errorf("%w: %w", errGoneAstray, p)
		}
	}()
	defer panics.Into(panics.Feed, &err)
	return s.pubsub.Receive(ctx)
}

// take acts on one message.
func (s *subscription) take(message any) error {
	switch message := message.(type) {
	case *redis.Message:
		switch message.Channel {
		case s.feed.store.pushChannel():
			s.feed.receive(message.Payload)
		case s.channel:
			return s.answer(message.Payload)
		}
		return nil
	case *redis.Pong:
		return s.answer(message.Payload)
	case *redis.Subscription:
		if s.live {
			return errGoneAstray
		}
		if message.Count == 2 {
			s.live = true
			s.answered.Store(1) // the first beat is the subscription itself
			s.feed.missed()
			s.feed.cfg.OnSubscription(nil)
		}
		return nil
	default:
		return errGoneAstray
	}
}

// answer notes that a beat has come back.
func (s *subscription) answer(payload string) error {
	beat, err := parseExact(payload)
	if err != nil {
		return errGoneAstray
	}
	s.answered.Store(beat)
	return nil
}

// watch sends beats until ctx ends or one of them is lost.
func (s *subscription) watch(ctx context.Context) error {
	ticker := time.NewTicker(beatTick)
	defer ticker.Stop()
	s.sent = 1
	for ticks := 1; ; ticks++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		pending := s.answered.Load() != s.sent
		if pending && ticks > beatTicks {
			return errSilent
		}
		if !pending && ticks >= beatTicks {
			s.sent++
			pending, ticks = true, 0
		}
		if pending && s.sent > 1 {
			s.beat(ctx)
		}
	}
}

// beat sends the current beat, once more if it was sent before. That it could
// not be sent shows when it does not come back.
func (s *subscription) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.feed.store.timeout)
	defer cancel()
	payload := strconv.FormatUint(s.sent, 10)
	if s.cluster && s.sent%echoEvery != 0 {
		_ = s.pubsub.Ping(ctx, payload)
		return
	}
	_ = s.feed.store.client.Publish(ctx, s.channel, payload).Err()
}
