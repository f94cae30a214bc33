package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/idgen"
	"snowgate/internal/panics"
)

const (
	// checkPause is the time between two reads of the revision. It is half of the shortest bound on
	// the age of the data of a decision, so that one reply may be late.
	checkPause = 500 * time.Millisecond
	// checkRetry is the same after a failure.
	checkRetry = 100 * time.Millisecond
	// longestLag is the greatest lag of a push that is reported, because a message can claim any.
	longestLag = time.Minute
)

// FeedConfig configures a [Feed]. Every function is optional, is called by goroutines of Run, and must
// not block.
type FeedConfig struct {
	// Followers are the copies to keep current, by the kind of push that concerns them:
	// [PushRules], [PushClient], [PushKeys]. A push about clients also concerns the rules.
	Followers map[string]Follower
	// OnToken is called for each token that any gateway has revoked.
	OnToken func(id idgen.ID)
	// OnGap is called at every subscription, including the first: earlier messages about tokens may
	// have been missed, later ones are not.
	OnGap func()
	// Now is the clock for measuring the lag of a push; it should follow Redis TIME. Default:
	// time.Now.
	Now func() time.Time

	// OnPush is called for every valid message, with its kind and the time since it was sent.
	OnPush func(kind string, lag time.Duration)
	// OnForgot is called when Redis may have lost its last writes, because of a failover or a
	// restore of older data.
	OnForgot func()
	// OnGarbled is called for every invalid message. The Feed ignores such messages.
	OnGarbled func()
	// OnSubscription is called with nil when messages begin to arrive, and with the reason when
	// they stop.
	OnSubscription func(err error)
	// Report is called with the error when the followers can no longer be confirmed, and with nil
	// when they are confirmed for the first time or again.
	Report func(err error)
}

func (c FeedConfig) withDefaults() FeedConfig {
	if c.OnToken == nil {
		c.OnToken = func(idgen.ID) {}
	}
	if c.OnGap == nil {
		c.OnGap = func() {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnPush == nil {
		c.OnPush = func(string, time.Duration) {}
	}
	if c.OnForgot == nil {
		c.OnForgot = func() {}
	}
	if c.OnGarbled == nil {
		c.OnGarbled = func() {}
	}
	if c.OnSubscription == nil {
		c.OnSubscription = func(error) {}
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	return c
}

// Feed keeps local copies of what all gateways share current, in two independent ways.
//
// Messages tell at once that something has changed. They are hints only, because a message is lost
// without a trace when a connection is lost. So after every new subscription, the Feed reads
// everything again that it may have missed.
//
// Twice a second, the Feed reads the revision. If it differs from that of the copies, the Feed reads
// them again; if Redis may have lost data, the followers read everything and write back what is
// missing. Decisions depend on the instant of the last successful read of the revision,
// [Feed.Confirmed], and so on no message.
//
// All methods are safe for concurrent use.
type Feed struct {
	store   *Store
	cfg     FeedConfig
	workers map[string]*worker

	confirmed atomic.Pointer[time.Time]
	gaps      atomic.Int64 // subscriptions so far
	wake      chan struct{}

	// Used by the goroutine that checks, and by no other.
	held     version
	heldGaps int64
	loaded   bool
}

// version identifies a state of the shared data.
type version struct {
	revision uint64 // 0: there is nothing
	replid   string // of the server; it changes when the server may have forgotten
}

// Feed returns a feed of s. Nothing happens before [Feed.Run] is called.
func (s *Store) Feed(cfg FeedConfig) *Feed {
	f := &Feed{store: s, wake: make(chan struct{}, 1)}
	f.Follow(cfg)
	return f
}

// Follow replaces the configuration of f by cfg. It must not be called after Run. Use it for
// followers that can only be made after f.
func (f *Feed) Follow(cfg FeedConfig) {
	f.cfg, f.workers = cfg.withDefaults(), make(map[string]*worker)
	for kind, follower := range cfg.Followers {
		f.workers[kind] = newWorker(kind, follower)
	}
}

// Run keeps the followers current until ctx ends. When it returns, all its goroutines have ended,
// and no function of the configuration is called any more.
func (f *Feed) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range f.workers {
		wg.Go(func() { panics.Keep(ctx, panics.Feed, w.run) })
	}
	wg.Go(func() { panics.Keep(ctx, panics.Feed, f.subscribe) })
	panics.Keep(ctx, panics.Feed, f.checkOften)
	wg.Wait()
}

// Confirmed returns the instant just before the last read that found every follower to be current,
// with a monotonic clock reading. ok is false if there was none yet.
func (f *Feed) Confirmed() (at time.Time, ok bool) {
	if at := f.confirmed.Load(); at != nil {
		return *at, true
	}
	return time.Time{}, false
}

// Ready reports whether every follower has been read once.
func (f *Feed) Ready() bool { return f.confirmed.Load() != nil }

// checkOften checks twice a second, sooner after a failure, and at once after a gap.
func (f *Feed) checkOften(ctx context.Context) {
	for first, failing := true, false; ; {
		err := f.check(ctx)
		if ctx.Err() != nil {
			return
		}
		if first || failing != (err != nil) {
			f.cfg.Report(err)
		}
		first, failing = false, err != nil
		pause := checkPause
		if failing {
			pause = checkRetry
		}
		f.rest(ctx, pause)
	}
}

// rest waits for d, or until there is a reason to check.
func (f *Feed) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.wake:
	case <-ctx.Done():
	}
}

// check reads the revision and makes the followers current.
func (f *Feed) check(ctx context.Context) error {
	gaps, asked := f.gaps.Load(), time.Now()
	now, err := f.store.version(ctx)
	if err != nil {
		return err
	}
	missed := !f.loaded || gaps != f.heldGaps
	forgot := now.revision < f.held.revision || now.replid != f.held.replid
	if f.loaded && forgot {
		f.cfg.OnForgot()
	}
	if missed || forgot || now != f.held {
		if err := f.refresh(ctx, missed || forgot); err != nil {
			return err
		}
		f.held, f.heldGaps, f.loaded = now, gaps, true
	}
	f.confirmed.Store(&asked)
	return nil
}

// refresh makes every follower read what has changed.
func (f *Feed) refresh(ctx context.Context, full bool) error {
	runs := make([]*refreshRun, 0, len(f.workers))
	for _, w := range f.workers {
		runs = append(runs, w.request(full))
	}
	var errs []error
	for _, t := range runs {
		errs = append(errs, t.result(ctx))
	}
	return errors.Join(errs...)
}

// receive handles one message.
func (f *Feed) receive(message string) {
	p, ok := parsePush(message)
	if !ok {
		f.cfg.OnGarbled()
		return
	}
	f.cfg.OnPush(p.kind, min(max(f.cfg.Now().Sub(p.sent), 0), longestLag))
	switch p.kind {
	case PushToken:
		f.cfg.OnToken(p.id)
	case PushClient:
		f.look(PushClient)
		f.look(PushRules) // its generation may have changed
	default:
		f.look(p.kind)
	}
}

// look makes the follower of that kind, if there is one, read what has changed.
func (f *Feed) look(kind string) {
	if w := f.workers[kind]; w != nil {
		w.request(false)
	}
}

// missed records that messages may have been missed.
func (f *Feed) missed() {
	f.gaps.Add(1)
	f.cfg.OnGap()
	select {
	case f.wake <- struct{}{}:
	default: // it is woken already
	}
}

// version reads the version of the shared data from a primary.
func (s *Store) version(ctx context.Context) (version, error) {
	const op = "ask for the revision"
	ctx, cancel := s.patient(ctx)
	defer cancel()
	reply, err := s.revision(ctx, s.client, versionScript)
	if err == nil && len(reply) != 2 {
		err = fmt.Errorf("a script returned %d values instead of 2", len(reply))
	}
	if err != nil {
		return version{}, failure(op, err)
	}
	v := version{replid: reply[1]}
	if reply[0] == "" {
		return v, nil
	}
	if v.revision, err = parseExact(reply[0]); err != nil {
		return version{}, failure(op, err)
	}
	return v, nil
}
