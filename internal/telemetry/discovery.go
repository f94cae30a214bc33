package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Discovery is the state of the discovery of routes at one moment.
type Discovery struct {
	// Up says whether Docker can be reached. Listed is the time of the last list of containers;
	// zero if there was none.
	Up     bool
	Listed time.Time
	// Lists, Failures and Events count since the start: lists, failed or lost connections, and
	// events.
	Lists, Failures, Events float64
	// Containers counts the containers that ask for a route, by state. Refused counts the routes
	// that conflict with others.
	Containers map[string]float64
	Refused    float64
}

// discoveryCollector reads the state of discovery once per scrape.
type discoveryCollector struct {
	read                                                      func() Discovery
	up, listed, lists, failures, events, containers, refusals *prometheus.Desc
}

// CollectDiscovery adds the snowgate_discovery_ metrics, which read state at each scrape. state
// must be safe for concurrent use and must not block.
func (m *Metrics) CollectDiscovery(state func() Discovery) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("snowgate_discovery_"+name, help, labels, nil)
	}
	m.registry.MustRegister(&discoveryCollector{
		read:       state,
		up:         desc("up", "1 while Docker can be reached, else 0. The discovered routes stay in force."),
		listed:     desc("last_list_timestamp_seconds", "Unix time at which the containers were last listed; 0: never."),
		lists:      desc("lists_total", "Lists of all containers."),
		failures:   desc("failures_total", "Connections to Docker that failed or were lost."),
		events:     desc("events_total", "Events received."),
		containers: desc("containers", "Containers that ask for a route, by state (serving, waiting, rejected).", "state"),
		refusals:   desc("refused_routes", "Discovered routes that conflict with others and are not in force."),
	})
}

// Describe implements [prometheus.Collector].
func (c *discoveryCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.listed, c.lists, c.failures, c.events, c.containers, c.refusals} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *discoveryCollector) Collect(out chan<- prometheus.Metric) {
	d := c.read()
	listed := 0.0
	if !d.Listed.IsZero() {
		listed = float64(d.Listed.UnixMilli()) / 1e3
	}
	out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, truth(d.Up))
	out <- prometheus.MustNewConstMetric(c.listed, prometheus.GaugeValue, listed)
	out <- prometheus.MustNewConstMetric(c.lists, prometheus.CounterValue, d.Lists)
	out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, d.Failures)
	out <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, d.Events)
	out <- prometheus.MustNewConstMetric(c.refusals, prometheus.GaugeValue, d.Refused)
	for state, n := range d.Containers {
		out <- prometheus.MustNewConstMetric(c.containers, prometheus.GaugeValue, n, state)
	}
}
