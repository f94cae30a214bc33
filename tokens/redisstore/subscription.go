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
	// beatTick is how often a subscription is checked. A beat is sent every beatTicks ticks, and
	// the subscription ends if the beat has not come back within as many ticks. The code counts
	// ticks instead of reading a clock, so that a gateway that was suspended handles the messages
	// that have arrived before it ends the subscription.
	beatTick  = 250 * time.Millisecond
	beatTicks = 4
	// echoEvery is the number of beats in a cluster for each one that passes through all nodes.
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
	var said bool // that there is no subscription
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
		if deadline.Sleep(ctx, back/2+mathrand.N(back)) != nil { //nolint:gosec // jitter, so that gateways do not subscribe at the same time
			return
		}
		back = min(2*back, resubscribeMost)
	}
}

// subscription is one connection on which messages arrive. go-redis would silently replace a broken
// connection. Here, any error ends the subscription.
//
// It reads without a deadline, because after a timeout in the middle of a message, the rest of the
// message would be taken for another one. Instead, beats find out whether messages arrive: each
// beat is published on a channel of its own and must come back. Unlike a PING on the connection, a
// beat also shows whether other gateways still publish on this server. In a cluster a beat costs a
// message between all nodes, so there most beats are a PING.
type subscription struct {
	feed    *Feed
	pubsub  *redis.PubSub
	channel string // of its beats
	live    bool   // subscribed
	cluster bool

	sent     uint64 // number of the last beat; used by watch only
	answered atomic.Uint64
}

func newSubscription(f *Feed) *subscription {
	_, cluster := f.store.client.(*redis.ClusterClient)
	return &subscription{feed: f, channel: f.store.pushChannel() + ":" + rand.Text(), cluster: cluster}
}

// run subscribes and handles messages until there is a reason to end.
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
		_ = s.pubsub.Close() // ends Receive; the error does not matter
	})
	end(s.receive(ctx))
	wg.Wait()
	return context.Cause(ctx)
}

// receive handles messages until there is an error.
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

// next reads one message. go-redis panics on some invalid replies; next returns any panic as an
// error.
func (s *subscription) next(ctx context.Context) (message any, err error) {
	defer func() {
		if p, panicked := errors.AsType[*panics.Panic](err); panicked {
			err = fmt.Errorf("%w: %w", errGoneAstray, p)
		}
	}()
	defer panics.Into(panics.Feed, &err)
	return s.pubsub.Receive(ctx)
}

// take handles one message.
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
			s.answered.Store(1) // the reply to the subscription counts as the first beat
			s.feed.missed()
			s.feed.cfg.OnSubscription(nil)
		}
		return nil
	default:
		return errGoneAstray
	}
}

// answer records that a beat has come back.
func (s *subscription) answer(payload string) error {
	beat, err := parseExact(payload)
	if err != nil {
		return errGoneAstray
	}
	s.answered.Store(beat)
	return nil
}

// watch sends beats until ctx ends or a beat is lost.
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

// beat sends the current beat, possibly again. It ignores errors, because a beat that was not sent
// does not come back.
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
