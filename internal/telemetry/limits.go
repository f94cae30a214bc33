package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Limits counts what the limits let through and refuse. It is safe for
// concurrent use.
type Limits struct {
	decisions *prometheus.CounterVec
	fallbacks *prometheus.CounterVec
	decided   memo[decision, prometheus.Counter]
}

// decision is what an event is counted by.
type decision struct {
	kind    string
	allowed bool
}

// NewLimits adds the snowgate_limit_ series. It may be called once.
func (m *Metrics) NewLimits() *Limits {
	l := &Limits{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_limit_decisions_total",
			Help: "Events that a limit was asked about, by kind (client_rate, route_rate, failed_auth_client, failed_auth_address, unknown_token) and outcome (allowed, refused).",
		}, []string{"kind", "outcome"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_limit_fallbacks_total",
			Help: "Times that this gateway was left to apply the rate of a client by itself because Redis did not answer, by reason (slow, error).",
		}, []string{"reason"}),
	}
	l.decided.find = l.series
	m.registry.MustRegister(l.decisions, l.fallbacks)
	return l
}

// Decided counts one decision of a limit of the given kind.
func (l *Limits) Decided(kind string, allowed bool) { l.decided.get(decision{kind, allowed}).Inc() }

func (l *Limits) series(d decision) prometheus.Counter {
	outcome := "refused"
	if d.allowed {
		outcome = "allowed"
	}
	return l.decisions.WithLabelValues(d.kind, outcome)
}

// FellBack counts one time that the gateway went on by itself.
func (l *Limits) FellBack(reason string) { l.fallbacks.WithLabelValues(reason).Inc() }
