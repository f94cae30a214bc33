package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// IDs is the state of the id generator at one moment, in the units of its metrics.
type IDs struct {
	Healthy            bool
	Worker             float64 // the worker number; -1 while none is held
	Generated          float64 // ids issued since the start
	Errors             float64 // calls that failed
	HeartbeatAge       float64 // seconds since the worker number was last confirmed
	HeartbeatTimestamp float64 // Unix time of that confirmation
	WaitSeconds        float64 // total time that callers waited for an id
	CeilingDistance    float64 // seconds until the recorded ceiling is reached
	ClockOffset        float64 // seconds by which the reference clock is ahead of ours
	ExhaustionDays     float64 // days until the time field is full
}

// idSeries is a metric with the field that it shows.
type idSeries struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(IDs) float64
}

// idCollector reads the state once per scrape.
type idCollector struct {
	read   func() IDs
	series []idSeries
}

// CollectIDs adds the idgen_ metrics, which read state at each scrape. state must be safe for
// concurrent use and must not block.
func (m *Metrics) CollectIDs(state func() IDs) {
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	series := func(name, help string, kind prometheus.ValueType, value func(IDs) float64) idSeries {
		return idSeries{prometheus.NewDesc(name, help, nil, nil), kind, value}
	}
	m.registry.MustRegister(&idCollector{state, []idSeries{
		series("idgen_healthy", "1 while ids can be issued, else 0.", gauge, func(s IDs) float64 { return truth(s.Healthy) }),
		series("idgen_worker_id", "Worker number held; -1: none.", gauge, func(s IDs) float64 { return s.Worker }),
		series("idgen_total_generated", "Ids issued.", counter, func(s IDs) float64 { return s.Generated }),
		series("idgen_error_count", "Calls that failed to get an id.", counter, func(s IDs) float64 { return s.Errors }),
		series("idgen_heartbeat_age", "Seconds since the worker number was last confirmed.", gauge, func(s IDs) float64 { return s.HeartbeatAge }),
		series("idgen_heartbeat_timestamp", "Unix time at which the worker number was last confirmed.", gauge, func(s IDs) float64 { return s.HeartbeatTimestamp }),
		series("idgen_wait_seconds_total", "Seconds that callers waited for an id.", counter, func(s IDs) float64 { return s.WaitSeconds }),
		series("idgen_ceiling_distance_seconds", "Seconds until the recorded ceiling is reached.", gauge, func(s IDs) float64 { return s.CeilingDistance }),
		series("idgen_clock_offset_seconds", "Seconds by which the reference clock is ahead of ours.", gauge, func(s IDs) float64 { return s.ClockOffset }),
		series("idgen_exhaustion_days", "Days until the time field of the layout is full.", gauge, func(s IDs) float64 { return s.ExhaustionDays }),
	}})
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements [prometheus.Collector].
func (c *idCollector) Describe(out chan<- *prometheus.Desc) {
	for _, s := range c.series {
		out <- s.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *idCollector) Collect(out chan<- prometheus.Metric) {
	state := c.read()
	for _, s := range c.series {
		out <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value(state))
	}
}
