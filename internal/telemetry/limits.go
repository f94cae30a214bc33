package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Limits counts the decisions of limits. It is safe for concurrent use.
type Limits struct {
	decisions *prometheus.CounterVec
	fallbacks *prometheus.CounterVec
	decided   memo[decision, prometheus.Counter]
}

// decision is the pair of labels of a counted event.
type decision struct {
	kind    string
	allowed bool
}

// NewLimits adds the snowgate_limit_ metrics. It may be called once.
func (m *Metrics) NewLimits() *Limits {
	l := &Limits{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_limit_decisions_total",
			Help: "Decisions of limits, by kind (client_rate, route_rate, failed_auth_client, failed_auth_address, unknown_token) and outcome (allowed, refused).",
		}, []string{"kind", "outcome"}),
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snowgate_limit_fallbacks_total",
			Help: "Times that this gateway applied the rate of a client by itself because Redis did not respond, by reason (slow, error).",
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

// FellBack counts one decision that the gateway made without Redis.
func (l *Limits) FellBack(reason string) { l.fallbacks.WithLabelValues(reason).Inc() }
