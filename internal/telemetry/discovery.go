package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Discovery is the state of the discovery of routes at one moment.
type Discovery struct {
	// Up tells that Docker can be reached, Listed when its containers were last
	// listed, zero if they never were.
	Up     bool
	Listed time.Time
	// Lists, Failures and Events count since the start: lists, connections that
	// failed or were lost, and events.
	Lists, Failures, Events float64
	// Containers counts the containers that ask to be taken in, by what became of
	// them, Refused the routes that are in the way of others.
	Containers map[string]float64
	Refused    float64
}

// discoveryCollector reads the state of discovery once for each scrape.
type discoveryCollector struct {
	read                                                      func() Discovery
	up, listed, lists, failures, events, containers, refusals *prometheus.Desc
}

// CollectDiscovery adds the snowgate_discovery_ series, read from state at each
// scrape. state must be safe for concurrent use and must not block.
func (m *Metrics) CollectDiscovery(state func() Discovery) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("snowgate_discovery_"+name, help, labels, nil)
	}
	m.registry.MustRegister(&discoveryCollector{
		read:       state,
		up:         desc("up", "1 while Docker can be reached, else 0: then the routes discovered so far stay."),
		listed:     desc("last_list_timestamp_seconds", "Unix time at which the containers were last listed; 0: never."),
		lists:      desc("lists_total", "Lists of all containers."),
		failures:   desc("failures_total", "Connections to Docker that failed or were lost."),
		events:     desc("events_total", "Events received."),
		containers: desc("containers", "Containers that ask to be taken in, by what became of them.", "state"),
		refusals:   desc("refused_routes", "Discovered routes that are in the way of others and so not in force."),
	})
}

// Describe sends the descriptors of all series.
func (c *discoveryCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.listed, c.lists, c.failures, c.events, c.containers, c.refusals} {
		out <- d
	}
}

// Collect reads the state and sends every series of it.
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
