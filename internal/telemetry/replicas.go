package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Replica is the state of one address of an upstream at one moment.
type Replica struct {
	// Upstream is the URL that routes name, Address what its name stands for.
	Upstream, Address string
	Healthy           bool
	InFlight          float64 // requests not answered to the end
	Failures          float64 // since it became known
	// Ejections is how often it was taken out, by the reason.
	Ejections map[string]float64
}

// replicaCollector reads the state of all replicas once for each scrape, so that
// those that are gone leave no series behind.
type replicaCollector struct {
	read                                   func() []Replica
	healthy, inFlight, failures, ejections *prometheus.Desc
}

// CollectReplicas adds the snowgate_replica_ series, read from state at each
// scrape. state must be safe for concurrent use and must not block.
func (m *Metrics) CollectReplicas(state func() []Replica) {
	labels := []string{"upstream", "address"}
	m.registry.MustRegister(&replicaCollector{
		read: state,
		healthy: prometheus.NewDesc("snowgate_replica_healthy",
			"1 while requests are sent to the replica, else 0.", labels, nil),
		inFlight: prometheus.NewDesc("snowgate_replica_requests_in_flight",
			"Requests that the replica has not answered to the end.", labels, nil),
		failures: prometheus.NewDesc("snowgate_replica_failures_total",
			"Times that the replica could not be reached, gave no valid response in time, or answered 502, 503 or 504.", labels, nil),
		ejections: prometheus.NewDesc("snowgate_replica_ejections_total",
			"Times that the replica was taken out, by the reason: connect, reset, protocol, status, timeout or check.",
			append(labels, "reason"), nil),
	})
}

// Describe sends the descriptors of all series.
func (c *replicaCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.healthy
	out <- c.inFlight
	out <- c.failures
	out <- c.ejections
}

// Collect reads the state and sends every series of it.
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
