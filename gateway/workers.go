package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"snowgate/config"
	"snowgate/handlers/admin"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/internal/telemetry"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// lookupTimeout bounds the look-up of Redis's name when the gateway asks for its
// own address on the way there.
const lookupTimeout = 2 * time.Second

// ids makes the ids of tokens, as soon as there is a generator. It owns the worker number. It is safe
// for concurrent use.
type ids struct {
	*setup
	scheme    idgen.Scheme
	generator atomic.Pointer[idgen.Generator]
	number    numberWatch
	refused   chan error  // why no worker number will be had: the gateway does not start
	whole     atomic.Bool // tokens could be issued at least once
	numbered  atomic.Bool // ids could be made at least once
	clock     *redislease.Clock
}

func newIDs(s *setup, clock *redislease.Clock) (*ids, error) {
	scheme, err := idgen.NewScheme(s.cfg.IDLayout, s.cfg.Epoch)
	if err != nil {
		return nil, &ConfigError{err}
	}
	if !time.Now().Before(scheme.Exhausts()) {
		return nil, &ConfigError{fmt.Errorf("%sID_LAYOUT: the time field of %s, counted from %sEPOCH=%s, was full on %s; choose a later epoch or a wider time field",
			config.Prefix, s.cfg.IDLayout, config.Prefix, s.cfg.Epoch.UTC().Format(time.RFC3339), scheme.Exhausts().Format(time.DateOnly))}
	}
	return &ids{setup: s, scheme: scheme, clock: clock, refused: make(chan error, 1)}, nil
}

// couldMake reports whether ids could be made at least once.
func (g *ids) couldMake() bool {
	if g.numbered.Load() {
		return true
	}
	h, started := g.health()
	if started && h.Healthy {
		g.numbered.Store(true)
	}
	return started && h.Healthy
}

// start takes a worker number in the background and makes ids from then on. port is that of the
// public listener, by which other gateways tell this one from another on the same host.
func (g *ids) start(ctx context.Context, store *redisstore.Store, port string) error {
	source, err := workerSource(ctx, g.cfg, store, port, g.noticeLease)
	if err != nil {
		return err
	}
	generator, err := newGenerator(g.cfg, g.scheme, source, g.clock, g.reportNumber)
	if err != nil {
		return err
	}
	g.generator.Store(generator)
	return nil
}

// explain adds the reason for callers to an error of the generator.
func (g *ids) explain(err error) error {
	return whyNoID(err, hostTime().Sub(g.clock.Time()), g.cfg.IDClock == config.ClockHost)
}

// errNoGenerator refuses to issue until the epoch is confirmed.
var errNoGenerator = fmt.Errorf("%w: the id generator has not started", tokens.ErrUnavailable)

// Next returns an id; it waits no longer than ctx lasts.
func (g *ids) Next(ctx context.Context) (idgen.ID, error) {
	generator := g.generator.Load()
	if generator == nil {
		return 0, errNoGenerator
	}
	id, err := generator.NextContext(ctx)
	if err != nil {
		return 0, g.explain(err)
	}
	return id, nil
}

// health returns the state of the generator; before there is one, ok is false.
func (g *ids) health() (h idgen.Health, ok bool) {
	generator := g.generator.Load()
	if generator == nil {
		return idgen.Health{Err: errNoGenerator}, false
	}
	if h = generator.Health(); h.Err != nil {
		h.Err = g.explain(h.Err)
	}
	return h, true
}

// close gives the worker number back.
func (g *ids) close(ctx context.Context) error {
	generator := g.generator.Load()
	if generator == nil {
		return nil
	}
	return generator.Close(ctx)
}

// series is what the idgen_ metrics show.
func (g *ids) series() telemetry.IDs {
	h, started := g.health()
	s := telemetry.IDs{
		Healthy:         h.Healthy,
		Worker:          -1,
		Generated:       float64(h.Generated),
		Errors:          float64(h.Errors),
		WaitSeconds:     h.Waited.Seconds(),
		CeilingDistance: h.CeilingDistance.Seconds(),
		ClockOffset:     h.ClockOffset.Seconds(),
	}
	if !started {
		return s
	}
	s.ExhaustionDays = time.Until(h.Exhausts).Hours() / 24
	if !h.Heartbeat.IsZero() {
		layout := g.generator.Load().Scheme().Layout()
		s.Worker = float64(layout.WorkerIndex(h.Worker))
		s.HeartbeatAge = time.Since(h.Heartbeat).Seconds()
		s.HeartbeatTimestamp = float64(h.Heartbeat.UnixMilli()) / 1e3
	}
	return s
}

// report is what the admin API tells of the generator.
func (g *ids) report() admin.IDHealth {
	h, started := g.health()
	r := admin.IDHealth{Healthy: h.Healthy, Generated: h.Generated, Errors: h.Errors, Rollbacks: h.Rollbacks}
	if h.Err != nil {
		r.Reason = h.Err.Error()
	}
	if started && h.Held {
		worker := g.generator.Load().Scheme().Layout().WorkerIndex(h.Worker)
		r.Worker = &worker
	}
	if !h.Heartbeat.IsZero() {
		r.LastHeartbeat = h.Heartbeat.UTC().Format(time.RFC3339Nano)
	}
	return r
}

// workerSource returns the source of the worker number. With a Redis of its own deployment it is
// leased there, whatever the number is; the embedded Redis is gone with the process, so there a
// number is taken without asking, and the ceiling of ids is kept in the state file, if there is
// one.
func workerSource(ctx context.Context, cfg config.Config, store *redisstore.Store, port string, onEvent func(redislease.Event)) (idgen.Source, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	towards := redisAddress(cfg.RedisURL)
	address, err := idgen.LocalIPv4(ctx, towards)
	if err != nil && (cfg.WorkerID.Source == config.WorkerIPv4 || cfg.WorkerID.Source == config.WorkerAuto) {
		return nil, &ConfigError{err}
	}
	if err := fitOctet(cfg, address); err != nil {
		return nil, &ConfigError{err}
	}
	self := hostname()
	if err == nil {
		self = address.String()
	}
	choice, alone := workerChoice(cfg, address, towards)
	switch {
	case cfg.RedisURL.IsSet() || alone == nil:
		return redislease.New(store.Client(), choice, redislease.Options{
			Address:        net.JoinHostPort(self, port),
			Prefix:         cfg.KeyPrefix,
			Timeout:        patientTimeout(cfg),
			SkipQuarantine: !cfg.RedisURL.IsSet(),
			OnEvent:        onEvent,
		})
	case cfg.StateFile != "":
		return idgen.HighWater(cfg.StateFile, alone), nil
	default:
		return alone, nil
	}
}

// fitOctet returns an error if the worker number is the last octet of address, and wider than its
// field.
func fitOctet(cfg config.Config, address netip.Addr) error {
	source := cfg.WorkerID.Source
	if source != config.WorkerIPv4 && source != config.WorkerAuto {
		return nil
	}
	octet, err := idgen.LastOctet(address)
	if err != nil {
		return err
	}
	if largest := cfg.IDLayout.Max(idgen.FieldWorker); octet > largest {
		return fmt.Errorf("%sWORKER_ID: %s takes the last octet of the address %s, and %d does not fit the worker field of %sID_LAYOUT, %s, which goes up to %d; "+
			"give the gateway an address with a smaller octet, or set %sWORKER_ID to lease or a number",
			config.Prefix, source, address, octet, config.Prefix, cfg.IDLayout, largest, config.Prefix)
	}
	return nil
}

// workerChoice translates SNOWGATE_WORKER_ID: into what to lease, and into a
// source of the same number without a lease, nil if there is no such thing.
func workerChoice(cfg config.Config, address netip.Addr, towards string) (redislease.Choice, idgen.Source) {
	datacenter := cfg.DatacenterID
	switch cfg.WorkerID.Source {
	case config.WorkerFixed:
		worker := idgen.Worker{Datacenter: datacenter, Number: cfg.WorkerID.Number}
		return redislease.Only(worker), idgen.Fixed(worker)
	case config.WorkerLease:
		if cfg.IDLayout.Bits(idgen.FieldDatacenter) > 0 {
			return redislease.AnyIn(datacenter), nil
		}
		return redislease.Any(), nil
	case config.WorkerRegistry:
		return redislease.Registered(), nil
	case config.WorkerIPv4:
		return redislease.OnlyOctet(datacenter, address), idgen.Octet(datacenter, towards)
	default: // auto
		return redislease.PreferOctet(datacenter, address), idgen.Octet(datacenter, towards)
	}
}

// logLease logs an event of the worker number: at the level info if it is usual, as a warning if
// somebody should look at it.
func logLease(logger zerolog.Logger, e redislease.Event) {
	level := zerolog.WarnLevel
	if e.Kind == redislease.EventAcquired || e.Kind == redislease.EventReleased || e.Kind == redislease.EventPending {
		level = zerolog.InfoLevel
	}
	logger.WithLevel(level).Str("event", string(e.Kind)).Int64("worker", e.Worker).Msg(e.Text)
}

// redisAddress returns host:port of the Redis that a URL names, empty if it
// names none that is reached by an address.
func redisAddress(secret config.Secret) string {
	u, err := url.Parse(secret.Reveal())
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// newGenerator starts the generator that cfg asks for. It returns at once: the
// worker number is taken in the background.
func newGenerator(cfg config.Config, scheme idgen.Scheme, source idgen.Source, clock *redislease.Clock, report func(error)) (*idgen.Generator, error) {
	policy, err := idgen.ParsePolicy(cfg.IDRollback, cfg.IDRollbackWait, cfg.IDRingSize)
	if err != nil {
		return nil, err
	}
	return idgen.New(context.Background(), scheme, source, append(clockOptions(cfg.IDClock, clock),
		idgen.WithPolicy(policy),
		idgen.WithBackgroundStart(),
		idgen.WithReport(report),
	)...)
}

// reportIDs logs a failure of the generator's heartbeat. While Redis is away it fails every second,
// which the monitor has logged already.
func reportIDs(logger zerolog.Logger, err error) {
	level := zerolog.WarnLevel
	if errors.Is(err, tokens.ErrUnavailable) {
		level = zerolog.DebugLevel
	}
	logger.WithLevel(level).Err(err).Msg("the id generator has trouble")
}
