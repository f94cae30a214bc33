// Package telemetry provides the metrics that the admin listener serves to Prometheus. It imports
// no other package of the gateway: the others report to it through small functions, so no decision
// depends on how it is counted.
package telemetry

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics holds all metrics of one gateway in its own registry. It is safe for concurrent use. No
// label takes a value that a caller chose.
type Metrics struct {
	registry        *prometheus.Registry
	traffic         *traffic
	issued          *prometheus.CounterVec
	validated       *prometheus.CounterVec
	revoked         *prometheus.CounterVec
	redisDuration   *prometheus.HistogramVec
	redisErrors     *prometheus.CounterVec
	reloads         *prometheus.CounterVec
	configTimestamp prometheus.Gauge

	// Metrics that every request uses.
	issues    memo[string, prometheus.Counter]
	verdicts  memo[string, prometheus.Counter]
	redisCall memo[string, prometheus.Observer]

	decisions       *decisions
	certificateOnce sync.Once
	certificate     prometheus.Gauge // nil without TLS
}

// New registers the metrics. version and commit become labels of snowgate_build_info.
func New(version, commit string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		traffic:  newTraffic(),
		issued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_tokens_issued_total",
			Help: "Token requests, by result.",
		}, []string{"result"}),
		validated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_tokens_validated_total",
			Help: "Token validations, by result.",
		}, []string{"result"}),
		revoked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_tokens_revoked_total",
			Help: "Token revocations, by result.",
		}, []string{"result"}),
		redisDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "snowgate_redis_call_duration_seconds",
			Help:    "Time of one Redis call, by command.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"command"}),
		redisErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_redis_errors_total",
			Help: "Redis calls that failed, by kind.",
		}, []string{"kind"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_config_reloads_total",
			Help: "Reloads of the configuration file, by result (ok, error).",
		}, []string{"result"}),
		configTimestamp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "snowgate_config_last_reload_timestamp_seconds",
			Help: "Unix time at which the configuration file in force was loaded.",
		}),
	}
	m.issues.find = func(result string) prometheus.Counter { return m.issued.WithLabelValues(result) }
	m.verdicts.find = func(result string) prometheus.Counter { return m.validated.WithLabelValues(result) }
	m.redisCall.find = func(command string) prometheus.Observer { return m.redisDuration.WithLabelValues(command) }
	m.decisions = newDecisions()
	m.registry.MustRegister(m.decisions.collectors()...)
	m.registerAll(version, commit)
	return m
}

func (m *Metrics) registerAll(version, commit string) {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "snowgate_build_info",
		Help:        "Always 1; the labels are version and commit.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit},
	})
	build.Set(1)
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, m.traffic, m.issued, m.validated, m.revoked,
		m.redisDuration, m.redisErrors, m.reloads, m.configTimestamp,
	)
}

// CollectLostLines adds the number of lost log lines, which lost returns at each scrape. lost must
// be safe for concurrent use and must not block.
func (m *Metrics) CollectLostLines(lost func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "snowgate_log_lines_lost_total",
		Help: "Log lines that were lost because they were not read as fast as they were written.",
	}, func() float64 { return float64(lost()) }))
}

// CollectPanics adds the number of panics caught in one part of the gateway, which count returns at
// each scrape.
func (m *Metrics) CollectPanics(part string, count func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "snowgate_panics_total",
		Help:        "Panics that were caught, by the part of the gateway. Each has ended one exchange or restarted a loop.",
		ConstLabels: prometheus.Labels{"part": part},
	}, func() float64 { return float64(count()) }))
}

// Handler serves the metrics in the formats of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Request counts one request that has ended. route must be a template, never a path that a caller
// chose. A method that HTTP does not define counts as "other".
func (m *Metrics) Request(route, method string, status int, d time.Duration) {
	m.traffic.of(route).count(method, status, d)
}

// Route returns a counter for the requests of a route in force; it counts like Request. A route may
// have several counters, which count together.
func (m *Metrics) Route(name string) *RouteTraffic {
	m.traffic.enter(name)
	return &RouteTraffic{all: m.traffic, name: name}
}

// RouteGone records that no route of that name is in force any more. Its counters are dropped after
// five minutes, or earlier if more than 256 other routes have gone since. If a route of the same
// name returns before that, it continues with the counters. Otherwise it starts at zero.
func (m *Metrics) RouteGone(name string) { m.traffic.quit(name) }

// Issued counts one request for a token by its result.
func (m *Metrics) Issued(result string) { m.issues.get(result).Inc() }

// Validated counts one validation of a token by its result.
func (m *Metrics) Validated(result string) { m.verdicts.get(result).Inc() }

// Revoked counts one attempt to revoke a token by its result.
func (m *Metrics) Revoked(result string) { m.revoked.WithLabelValues(result).Inc() }

// RedisCall counts one Redis call. kind is "ok" for a call that succeeded.
func (m *Metrics) RedisCall(command string, d time.Duration, kind string) {
	m.redisCall.get(command).Observe(d.Seconds())
	if kind != "ok" {
		m.redisErrors.WithLabelValues(kind).Inc()
	}
}

// Reloaded counts one attempt to load the configuration file.
func (m *Metrics) Reloaded(at time.Time, err error) {
	if err != nil {
		m.reloads.WithLabelValues("error").Inc()
		return
	}
	m.reloads.WithLabelValues("ok").Inc()
	m.configTimestamp.Set(float64(at.UnixMilli()) / 1e3)
}
