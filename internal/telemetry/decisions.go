package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// decisions are the metrics about accepted tokens, and about the state behind those decisions.
type decisions struct {
	lookups       *prometheus.CounterVec
	hits, misses  prometheus.Counter // of lookups
	age           prometheus.Histogram
	failStatic    prometheus.Counter
	failStaticOn  prometheus.Gauge
	cut           *prometheus.CounterVec
	pushes        *prometheus.HistogramVec
	garbled       prometheus.Counter
	subscriptions prometheus.Counter
	subscribed    prometheus.Gauge
	missing       prometheus.Counter
	writtenBack   prometheus.Counter
}

func newDecisions() *decisions {
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "snowgate_token_cache_lookups_total",
		Help: "Lookups in the cache of validated tokens, by result. A hit saves a Redis call.",
	}, []string{"result"})
	return &decisions{
		lookups: lookups, hits: lookups.WithLabelValues("hit"), misses: lookups.WithLabelValues("miss"),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "snowgate_token_age_seconds",
			Help:    "Age of accepted tokens, read from their ids.",
			Buckets: []float64{1, 10, 60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400},
		}),
		failStatic: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snowgate_fail_static_uses_total",
			Help: "Tokens that were served from the cache although Redis could not be reached.",
		}),
		failStaticOn: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "snowgate_fail_static_active",
			Help: "1 while tokens are served although Redis cannot be reached.",
		}),
		cut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_streams_cut_total",
			Help: "Streams that were cut because their token ended, by reason.",
		}, []string{"reason"}),
		pushes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "snowgate_push_lag_seconds",
			Help:    "Time from the writing of a change to the message about it, by kind.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"kind"}),
		garbled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snowgate_push_garbled_total",
			Help: "Messages on the push channel that were ignored because they could not be parsed.",
		}),
		subscriptions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snowgate_push_gaps_total",
			Help: "Subscriptions to the push channel. Messages may have been missed before each of them.",
		}),
		subscribed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "snowgate_push_subscribed",
			Help: "1 while messages about revocations arrive.",
		}),
		missing: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snowgate_tokens_missing_total",
			Help: "Cached tokens whose record was gone from Redis before their time, without a revocation that was heard of.",
		}),
		writtenBack: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snowgate_revocations_written_back_total",
			Help: "Revocations of single tokens that a failover had undone and that were made again.",
		}),
	}
}

// collectors returns all series.
func (d *decisions) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		d.lookups, d.age, d.failStatic, d.failStaticOn, d.cut, d.pushes, d.garbled, d.subscriptions, d.subscribed,
		d.missing, d.writtenBack,
	}
}

// TokenMissing counts one token whose record was gone before its time.
func (m *Metrics) TokenMissing() { m.decisions.missing.Inc() }

// WrittenBack counts one revocation that was made again.
func (m *Metrics) WrittenBack() { m.decisions.writtenBack.Inc() }

// CacheLookup counts one lookup in the cache of validated tokens.
func (m *Metrics) CacheLookup(hit bool) {
	if hit {
		m.decisions.hits.Inc()
	} else {
		m.decisions.misses.Inc()
	}
}

// TokenAge records the age of an accepted token.
func (m *Metrics) TokenAge(age time.Duration) { m.decisions.age.Observe(age.Seconds()) }

// FailStaticUse counts one token that was served from the cache although Redis could not be
// reached.
func (m *Metrics) FailStaticUse() { m.decisions.failStatic.Inc() }

// FailStatic records whether tokens are served although Redis cannot be reached.
func (m *Metrics) FailStatic(active bool) { m.decisions.failStaticOn.Set(truth(active)) }

// StreamCut counts one stream whose token ended, by the reason.
func (m *Metrics) StreamCut(reason string) { m.decisions.cut.WithLabelValues(reason).Inc() }

// Push records one message about a change, and its age.
func (m *Metrics) Push(kind string, lag time.Duration) {
	m.decisions.pushes.WithLabelValues(kind).Observe(lag.Seconds())
}

// PushGarbled counts one ignored message.
func (m *Metrics) PushGarbled() { m.decisions.garbled.Inc() }

// PushGap counts one subscription. Messages before it may have been missed.
func (m *Metrics) PushGap() { m.decisions.subscriptions.Inc() }

// Subscribed records whether messages arrive.
func (m *Metrics) Subscribed(is bool) { m.decisions.subscribed.Set(truth(is)) }

// Shared is the current state of the data that all gateways share.
type Shared struct {
	Rules        float64 // revocation rules held
	UnknownRules float64 // of them, those of a kind that this version does not know
	CachedTokens float64 // validated tokens in memory
	Watched      float64 // tokens with open streams
	ConfirmedAge float64 // seconds since the rules were confirmed, +Inf before the first time
}

// CollectShared adds metrics that read state at each scrape. state must be safe for concurrent use
// and must not block.
func (m *Metrics) CollectShared(state func() Shared) {
	gauge := func(name, help string, value func(Shared) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(state()) })
	}
	m.registry.MustRegister(
		gauge("snowgate_revocation_rules", "Revocation rules held in memory.", func(s Shared) float64 { return s.Rules }),
		gauge("snowgate_revocation_rules_unknown", "Revocation rules of a kind that only a newer version knows; tokens that they may match are answered with 503.", func(s Shared) float64 { return s.UnknownRules }),
		gauge("snowgate_token_cache_entries", "Validated tokens held in memory.", func(s Shared) float64 { return s.CachedTokens }),
		gauge("snowgate_watched_tokens", "Tokens under which streams are open.", func(s Shared) float64 { return s.Watched }),
		gauge("snowgate_rules_confirmed_age_seconds", "Seconds since the revocation rules were last confirmed to be current.", func(s Shared) float64 { return s.ConfirmedAge }),
	)
}

// CollectRemark adds the state of one remark on the settings of Redis, which applies returns at each
// scrape. applies must be safe for concurrent use and must not block.
func (m *Metrics) CollectRemark(name string, applies func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "snowgate_redis_remark",
		Help:        "1 for each setting of Redis that should be changed; the log says how.",
		ConstLabels: prometheus.Labels{"remark": name},
	}, func() float64 { return truth(applies()) }))
}
