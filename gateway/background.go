package gateway

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

// background runs everything that goes on beside the requests, until ctx ends. It returns early
// only with an error that leaves the gateway useless. A task that panics starts again after a
// pause. A panic of begin is such an error, because no token is issued without begin.
func (g *Gateway) background(ctx context.Context, port string, rested func() uint64) error {
	group, ctx := errgroup.WithContext(ctx)
	run := func(f func(context.Context)) {
		group.Go(func() error { panics.Keep(ctx, panics.Gateway, f); return nil })
	}
	run(g.monitor.Run)
	run(g.watchConfig)
	run(func(ctx context.Context) { giveBack(ctx, rested) })
	if g.routing.watcher != nil {
		run(g.routing.watcher.Run)
	}
	if g.certificate != nil {
		run(g.certificate.run)
	}
	group.Go(func() (err error) { defer panics.Into(panics.Gateway, &err); return g.begin(ctx, port, run) })
	return group.Wait()
}

// begin starts the tag keys and the generator of ids, once it is known that the ids of this
// deployment count time as this gateway does.
func (g *Gateway) begin(ctx context.Context, port string, run func(func(context.Context))) error {
	if err := g.installation.claim(ctx); err != nil {
		return err
	}
	for g.storage.clock.Sync(ctx) != nil {
		if deadline.Sleep(ctx, claimPause) != nil {
			return nil //nolint:nilerr // asked to stop before Redis was there
		}
	}
	run(g.storage.clock.Run)
	run(g.shared.keys.Run)
	run(g.shared.feed.Run)
	run(g.shared.flushUses)
	if err := g.shared.refuseClash(ctx); err != nil {
		return err
	}
	if err := g.ids.start(ctx, g.storage.store, port); err != nil {
		return err
	}
	run(g.awaitReady)
	return g.installation.restore(ctx, g.ids.refused)
}

// Pauses between checks for something that is about to happen.
const (
	claimPause = 100 * time.Millisecond
	readyPause = 10 * time.Millisecond
)

// awaitReady logs when the gateway becomes ready.
func (g *Gateway) awaitReady(ctx context.Context) {
	state := g.readiness()
	// A generator goes on for a while after it has lost its number; then there is
	// none to tell.
	for ; !state.Issuing.Ready || state.Issuing.Worker == nil; state = g.readiness() {
		if deadline.Sleep(ctx, readyPause) != nil {
			return
		}
	}
	g.log.Info().Int64("worker", *state.Issuing.Worker).Str("layout", g.cfg.IDLayout.String()).
		Time("epoch", g.cfg.Epoch).Msg("ready: tokens are checked and issued")
	if g.whenReady != nil {
		g.whenReady()
	}
}
