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
	monitorPause     = time.Second            // between two probes while Redis is up
	monitorPauseDown = 100 * time.Millisecond // while Redis is down
	settingsPause    = time.Minute            // between two reads of the settings
	rightsPause      = 5 * time.Second        // between two checks of the rights, if the last one succeeded
)

// Health is the state of Redis as a [Monitor] knows it.
type Health struct {
	// Reachable: at the last probe, a primary replied, had finished loading, and accepted writes. A
	// primary that is only full is reachable.
	Reachable bool
	// Since is when Reachable last changed, by the clock of the monitor; zero before the end of the
	// first probe.
	Since time.Time
	// Kind is the kind of the last failure, [KindOK] without a failure.
	Kind string
	// Err is the last failure, nil while reachable.
	Err error

	// Installation holds the recorded values at the last probe with a reply.
	Installation Installation
	// Empty: some of these values were missing. Redis is new or has lost its data, and the gateway
	// should write back the shared data.
	Empty bool

	// Offset is Redis TIME minus the local clock at the last probe with a reply. The true value
	// differs by at most RoundTrip/2.
	Offset time.Duration
	// RoundTrip is the duration of that round trip.
	RoundTrip time.Duration
	// Measured is the local instant in the middle of it; zero if there was none.
	Measured time.Time

	// Settings are read once a minute, and after each new connection; zero if they could not be
	// read.
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

// Monitor probes Redis about once a second, and reads its time. Health is safe for concurrent use.
type Monitor struct {
	store  *Store
	cfg    MonitorConfig
	health atomic.Pointer[Health]

	// Used by the goroutine of Run only.
	settled   time.Time // when the settings were read
	mayReadAt time.Time // when the rights were checked
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

// ask reads the clock of Redis into h and finds out whether the server is a primary. A replica, or
// a server that is loading, replies to TIME, but not to the GETEX of installation.
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

// warm opens the connections that decisions use. To open a connection takes several round trips,
// which is too long for a decision if the server is far away.
func (s *Store) warm(ctx context.Context) {
	if _, ok := s.client.(*redis.Client); !ok {
		return // in a cluster each node has connections of its own
	}
	ctx, cancel := s.patient(ctx)
	defer cancel()
	ping := func() redis.Cmder { return redis.NewStatusCmd(ctx, "ping") }
	var wg sync.WaitGroup
	for range lanes / 2 { // go-redis has a pool for commands, and another one for pipelines
		wg.Go(func() { defer panics.Catch(panics.Redis, nil); _ = s.client.Process(ctx, ping()) })
		wg.Go(func() {
			defer panics.Catch(panics.Redis, nil)
			pipe := s.client.Pipeline()
			_ = pipe.Process(ctx, ping())
			_, _ = pipe.Exec(ctx)
		})
	}
	wg.Wait()
}

// mayRead returns an error if the user may not read tokens. It ignores other failures: in a cluster
// they say nothing about the other shards.
func (s *Store) mayRead(ctx context.Context) error {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	key := s.prefix + ":probe" // it does not exist, and needs the same rights as the record of a token
	pipe := s.client.Pipeline()
	pipe.Get(ctx, key)
	_ = pipe.Process(ctx, redis.NewSliceCmd(ctx, "mget", key))
	pipe.GetEx(ctx, key, -1)
	results, _ := pipe.Exec(ctx) // every command has its own error
	for _, result := range results {
		if err := result.Err(); Kind(err) == KindAuth {
			return err
		}
	}
	return nil
}

// clockNode returns the server whose clock is used. In a cluster it is always the node with the
// shared keys, because the clocks of the nodes may differ.
func (s *Store) clockNode(ctx context.Context) (redis.UniversalClient, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, s.sharedKey("epoch"))
	}
	return s.client, nil
}
