package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"snowgate/clients"
	"snowgate/clients/redisclients"
	"snowgate/config"
	"snowgate/internal/deadline"
	"snowgate/tokens/redisstore"
)

// flushPause is how often the last uses of client secrets are written down.
const flushPause = time.Minute

// patientTimeout is the timeout of operations in Redis for which no request for a service waits.
func patientTimeout(cfg config.Config) time.Duration {
	return max(redisstore.PatientTimeout(cfg.StoreTimeout), time.Second)
}

// openRegistry connects the clients to those that Redis keeps.
func (g *shared) openRegistry() {
	// Redis may have been emptied just now, and be given the clients back by the other gateways. Until
	// that is over, nobody gets a worker number (see package redislease).
	current := func() bool { return g.confirmed() && g.ids.couldMake() }
	g.clients.Follow(current, func(id string) {
		g.log.Error().Str("client", id).Msg("the registry has a client that is configured, too: the configured one counts; delete the other")
	})
	g.registry = redisclients.New(g.store.Client(), g.clients, redisclients.Options{
		Prefix: g.cfg.KeyPrefix, Timeout: patientTimeout(g.cfg), MaxTTL: g.cfg.TokenMaxTTL, Now: g.clock.Time,
		Report: func(err error) { g.log.Warn().Err(err).Msg("the client registry") },
	})
}

// configuredClients are the clients of the file and of the environment.
func (g *shared) configuredClients(file config.File) ([]clients.Client, error) {
	secret := g.cfg.AdminClientSecret
	if !secret.IsSet() {
		return file.Clients, nil
	}
	administrator, err := clients.Bootstrap(secret.Reveal())
	if err != nil {
		return nil, err
	}
	return append(file.Clients[:len(file.Clients):len(file.Clients)], administrator), nil
}

// refuseClash waits until the clients of the registry are known, and returns an
// error if one of them is configured, too. Later, a file with such a client is
// not put in force.
func (g *shared) refuseClash(ctx context.Context) error {
	for !g.feed.Ready() {
		if deadline.Sleep(ctx, readyPause) != nil {
			return nil //nolint:nilerr // asked to stop before Redis was there
		}
	}
	return clashOf(g.clients)
}

// clashOf returns an error if a client is both configured and stored in Redis.
func clashOf(known *clients.Registry) error {
	const most = 20 // are named
	twice, _ := known.Page("", most, func(c *clients.Client) bool {
		return c.Source != clients.SourceRegistry && known.Stored(c.ID) != nil
	})
	if len(twice) == 0 {
		return nil
	}
	var names []string
	for _, c := range twice {
		names = append(names, fmt.Sprintf("%s (%s)", c.ID, c.Source))
	}
	return &ConfigError{errors.New("clients are configured that the registry in Redis has, too: " + strings.Join(names, ", ") +
		"; take them out of the configuration, or delete them by the admin API first")}
}

// clientFollower keeps the registry current, and cuts the streams of clients that lost a right.
type clientFollower struct {
	*redisclients.Store
	shared *shared
	seen   atomic.Uint64 // version of the registry that was acted on
}

// Refresh implements [redisstore.Follower].
func (f *clientFollower) Refresh(ctx context.Context) error { return f.changed(f.Store.Refresh(ctx)) }

// Poll implements [redisstore.Poller].
func (f *clientFollower) Poll(ctx context.Context) error { return f.changed(f.Store.Poll(ctx)) }

// changed tells the token service if the registry has changed, and returns err.
func (f *clientFollower) changed(err error) error {
	if version := f.shared.clients.Version(); f.seen.Swap(version) != version {
		f.shared.tokens.ClientsChanged()
	}
	return err
}

// flushUses stores once a minute when each secret was last used.
func (g *shared) flushUses(ctx context.Context) {
	for deadline.Sleep(ctx, flushPause) == nil {
		if err := g.registry.Flush(ctx); err != nil && ctx.Err() == nil {
			g.log.Debug().Err(err).Msg("the last uses of client secrets are not written down yet")
		}
	}
}
