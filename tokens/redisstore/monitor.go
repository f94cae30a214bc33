package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

const (
	monitorPause     = time.Second            // between two probes when all is well
	monitorPauseDown = 100 * time.Millisecond // while Redis is down
	settingsPause    = time.Minute            // between two looks at the settings
	rightsPause      = 5 * time.Second        // between two looks at the rights, when all is well
)

// Health is what a [Monitor] knows of Redis.
type Health struct {
	// Reachable: at the last probe a primary answered, was done loading, and
	// did not refuse writes as such. A primary that is merely full is reachable.
	Reachable bool
	// Since is when Reachable last changed, by the monitor's clock; zero before
	// the first probe ended.
	Since time.Time
	// Kind is that of the last failure, [KindOK] if there was none.
	Kind string
	// Err is the last failure, nil while reachable.
	Err error

	// Installation is what was recorded at the last probe that was answered.
	Installation Installation
	// Empty: a part of it was missing. Redis is new, or has lost its data, and
	// should be told what all gateways share.
	Empty bool

	// Offset is Redis TIME minus the local clock, as of the last probe that
	// was answered; the true value is within RoundTrip/2 of it.
	Offset time.Duration
	// RoundTrip is how long that answer took.
	RoundTrip time.Duration
	// Measured is the local instant halfway through it; zero if there was none.
	Measured time.Time

	// Settings are asked for once a minute, and at each new connection; zero if they could not be had.
	Settings Settings
}

// MonitorConfig is the configuration of a [Monitor]. The zero value is usable.
type MonitorConfig struct {
	// Now is the local clock. Default: time.Now.
	Now func() time.Time
	// OnProbe, if set, is called after every probe, by the goroutine of Run.
	OnProbe func(Health)
	// OnChange, if set, is called when Reachable changed, and after the first probe, by the goroutine
	// of Run.
	OnChange func(Health)
}

// Monitor asks Redis about once a second whether it is there and what time it
// is. Health may be called by many goroutines at once.
type Monitor struct {
	store  *Store
	cfg    MonitorConfig
	health atomic.Pointer[Health]

	// Used by the goroutine of Run only.
	settled   time.Time // when the settings were asked for
	mayReadAt time.Time // when the rights were looked at
}

// Monitor returns a monitor of s. It probes nothing before [Monitor.Run] is called.
func (s *Store) Monitor(cfg MonitorConfig) *Monitor {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Monitor{store: s, cfg: cfg}
	m.health.Store(&Health{Kind: KindOK})
	return m
}

// Health returns the result of the last probe.
func (m *Monitor) Health() Health { return *m.health.Load() }

// Run probes until ctx ends: about once a second, ten times a second while
// Redis is down.
func (m *Monitor) Run(ctx context.Context) {
	for {
		m.probe(ctx)
		pause := monitorPause
		if !m.Health().Reachable {
			pause = monitorPauseDown
		}
		if deadline.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// probe makes one probe and publishes the result.
func (m *Monitor) probe(ctx context.Context) {
	before := m.Health()
	now := before
	now.Err = m.ask(ctx, &now)
	if ctx.Err() != nil {
		return
	}
	if now.Err == nil && !before.Reachable && now.RoundTrip > late {
		m.store.warm(ctx)
	}
	now.Kind = Kind(now.Err)
	now.Reachable = now.Err == nil
	m.store.demoted.Store(now.Kind == KindReadOnly)
	changed := before.Since.IsZero() || now.Reachable != before.Reachable
	if changed {
		now.Since = m.cfg.Now()
	}
	if now.Reachable && (changed || time.Since(m.settled) >= settingsPause) {
		now.Settings, m.settled = m.store.settings(ctx), time.Now()
	}
	m.health.Store(&now)
	if m.cfg.OnProbe != nil {
		m.cfg.OnProbe(now)
	}
	if m.cfg.OnChange != nil && changed {
		m.cfg.OnChange(now)
	}
}

// ask reads Redis's clock into h and finds out whether a primary is behind it:
// TIME is answered by a replica and while loading, the GETEX of installation by
// neither.
func (m *Monitor) ask(whole context.Context, h *Health) error {
	ctx, cancel := m.store.patient(whole)
	defer cancel()
	node, err := m.store.clockNode(ctx)
	if err != nil {
		return err
	}
	begin, local := time.Now(), m.cfg.Now()
	remote, err := node.Time(ctx).Result()
	if err != nil {
		return err
	}
	h.RoundTrip = time.Since(begin)
	h.Measured = local.Add(h.RoundTrip / 2)
	h.Offset = remote.Sub(h.Measured)
	recorded, err := m.store.installation(ctx)
	if err != nil {
		return err
	}
	h.Installation, h.Empty = recorded, !recorded.Complete()
	if m.Health().Reachable && time.Since(m.mayReadAt) < rightsPause {
		return nil
	}
	m.mayReadAt = time.Now()
	return m.store.mayRead(whole)
}

// warm opens the connections that decisions use, because one that has to open its own takes several
// round trips. It is for a server that is far away.
func (s *Store) warm(ctx context.Context) {
	if _, ok := s.client.(*redis.Client); !ok {
		return // in a cluster each node has connections of its own
	}
	ctx, cancel := s.patient(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range lanes / 2 {
		wg.Go(func() { defer panics.Catch(panics.Redis, nil); _ = s.client.Ping(ctx) })
		wg.Go(func() {
			defer panics.Catch(panics.Redis, nil)
			_, _ = s.client.Pipelined(ctx, func(p redis.Pipeliner) error { p.Ping(ctx); return nil })
		})
	}
	wg.Wait()
}

// mayRead returns an error if the user lacks a right that reading tokens takes. Another failure is
// none: in a cluster it says nothing about the other shards.
func (s *Store) mayRead(ctx context.Context) error {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	key := s.prefix + ":probe" // there is none; to the rights it is like the record of a token
	results, _ := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, key)
		p.MGet(ctx, key)
		p.GetEx(ctx, key, -1)
		return nil
	})
	for _, result := range results {
		if err := result.Err(); Kind(err) == KindAuth {
			return err
		}
	}
	return nil
}

// clockNode returns the server whose clock counts: in a cluster always the one
// that holds the shared keys, because the clocks of the others may differ.
func (s *Store) clockNode(ctx context.Context) (redis.UniversalClient, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, s.sharedKey("epoch"))
	}
	return s.client, nil
}
