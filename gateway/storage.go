package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"snowgate/config"
	"snowgate/idgen/redislease"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/redisstore/embedded"
)

// storage is the Redis of a gateway: the connection, the probe of it, and the clock that follows
// its TIME. It is safe for concurrent use.
type storage struct {
	*setup
	embedded *embedded.Server // nil with a Redis of its own
	store    *redisstore.Store
	clock    *redislease.Clock

	remarked []string // the names of the remarks that were logged

	clockTrouble string // what the log said last of the clock of Redis; empty: all is well
}

// openStorage opens the configured Redis, or starts the embedded one.
func openStorage(s *setup) (*storage, error) {
	redis.SetLogger(redisLog{s.log})
	r := &storage{setup: s}
	address := s.cfg.RedisURL.Reveal()
	if address == "" {
		server, err := embedded.Start()
		if err != nil {
			return nil, err
		}
		r.embedded, address = server, server.URL()
	}
	store, err := redisstore.Open(redisstore.Options{
		URL: address, Prefix: s.cfg.KeyPrefix, Timeout: s.cfg.StoreTimeout, Observe: s.metrics.RedisCall,
		WaitReplicas: s.cfg.WaitReplicas, WaitIssue: s.cfg.WaitIssue, WaitTimeout: s.cfg.WaitTimeout, Secure: s.cfg.RedisTLS().Apply,
	})
	if err != nil {
		return nil, &ConfigError{err}
	}
	if s.cfg.SkipsVerification() {
		s.log.Warn().Msg("SNOWGATE_REDIS_URL says skip_verify=true: anybody on the way to Redis can pretend to be it; name its CA in SNOWGATE_REDIS_CA instead")
	}
	r.store, r.clock = store, redislease.NewClock(store.Client(), s.cfg.KeyPrefix)
	return r, nil
}

// OpenStore opens the configured Redis for one task of a command, which is given at least a second
// for each question. The caller closes the store. Errors are a [*ConfigError].
func OpenStore(cfg config.Config) (*redisstore.Store, error) {
	redis.SetLogger(redisLog{zerolog.Nop()}) // the command says what failed
	store, err := redisstore.Open(redisstore.Options{
		URL: cfg.RedisURL.Reveal(), Prefix: cfg.KeyPrefix, Timeout: max(cfg.StoreTimeout, time.Second),
		WaitReplicas: cfg.WaitReplicas, WaitTimeout: cfg.WaitTimeout, Once: true, Secure: cfg.RedisTLS().Apply,
	})
	if err != nil {
		return nil, &ConfigError{err}
	}
	return store, nil
}

// report logs how Redis is doing when that changes.
func (r *storage) report(h redisstore.Health) {
	if !h.Reachable {
		r.log.Error().Err(h.Err).Str("kind", h.Kind).Str("redis", redisAddress(r.cfg.RedisURL)).
			Str("way_out", redisHint(context.Background(), r.cfg, h.Err)).Msg("Redis cannot be used: requests that need it are answered with 503")
		return
	}
	r.log.Info().Dur("round_trip", h.RoundTrip).Msg("Redis is reachable")
}

// remark logs the remarks on the settings of Redis, each once until it is gone. It is called by the
// monitor's goroutine alone.
func (r *storage) remark(h redisstore.Health) {
	if !h.Reachable {
		return
	}
	logged := r.remarked
	r.remarked = nil
	for _, remark := range r.remarks(h) {
		if r.remarked = append(r.remarked, remark.Name); !slices.Contains(logged, remark.Name) {
			r.log.Warn().Str("redis", redisAddress(r.cfg.RedisURL)).Str("remark", remark.Name).Msg(remark.Text)
		}
	}
}

// remarks returns what should be changed in the settings of Redis; nothing for the embedded one.
func (r *storage) remarks(h redisstore.Health) []redisstore.Remark {
	if r.embedded != nil {
		return nil
	}
	return h.Settings.Remarks(r.cfg.WaitReplicas)
}

// hasRemark reports whether there is a remark of that name.
func (r *storage) hasRemark(h redisstore.Health, name string) bool {
	return slices.ContainsFunc(r.remarks(h), func(remark redisstore.Remark) bool { return remark.Name == name })
}

// remarkTexts returns the texts of remarks.
func (r *storage) remarkTexts(h redisstore.Health) (texts []string) {
	for _, remark := range r.remarks(h) {
		texts = append(texts, remark.Text)
	}
	return texts
}

// close ends the connections, and the embedded Redis.
func (r *storage) close() {
	if err := r.store.Close(); err != nil {
		r.log.Debug().Err(err).Msg("closing Redis")
	}
	if r.embedded != nil {
		r.embedded.Close()
	}
}
