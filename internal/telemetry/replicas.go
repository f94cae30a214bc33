package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Replica is the state of one address of an upstream at one moment.
type Replica struct {
	// Upstream is the URL in the routes. Address is one address of its name.
	Upstream, Address string
	Healthy           bool
	InFlight          float64 // requests without a complete response
	Failures          float64 // since the address became known
	// Ejections is how often the replica was ejected, by reason.
	Ejections map[string]float64
}

// replicaCollector reads the state of all replicas once per scrape. So a replica that has gone
// leaves no metrics behind.
type replicaCollector struct {
	read                                   func() []Replica
	healthy, inFlight, failures, ejections *prometheus.Desc
}

// CollectReplicas adds the snowgate_replica_ metrics, which read state at each scrape. state must
// be safe for concurrent use and must not block.
func (m *Metrics) CollectReplicas(state func() []Replica) {
	labels := []string{"upstream", "address"}
	m.registry.MustRegister(&replicaCollector{
		read: state,
		healthy: prometheus.NewDesc("snowgate_replica_healthy",
			"1 while requests are sent to the replica, else 0.", labels, nil),
		inFlight: prometheus.NewDesc("snowgate_replica_requests_in_flight",
			"Requests for which the replica has not sent the whole response.", labels, nil),
		failures: prometheus.NewDesc("snowgate_replica_failures_total",
			"Times that the replica could not be reached, gave no valid response in time, or answered 502, 503 or 504.", labels, nil),
		ejections: prometheus.NewDesc("snowgate_replica_ejections_total",
			"Times that the replica was ejected, by reason: connect, reset, protocol, status, timeout or check.",
			append(labels, "reason"), nil),
	})
}

// Describe implements [prometheus.Collector].
func (c *replicaCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.healthy
	out <- c.inFlight
	out <- c.failures
	out <- c.ejections
}

// Collect implements [prometheus.Collector].
func (c *replicaCollector) Collect(out chan<- prometheus.Metric) {
	for _, r := range c.read() {
		out <- prometheus.MustNewConstMetric(c.healthy, prometheus.GaugeValue, truth(r.Healthy), r.Upstream, r.Address)
		out <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, r.InFlight, r.Upstream, r.Address)
		out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, r.Failures, r.Upstream, r.Address)
		for reason, n := range r.Ejections {
			out <- prometheus.MustNewConstMetric(c.ejections, prometheus.CounterValue, n, r.Upstream, r.Address, reason)
		}
	}
}
