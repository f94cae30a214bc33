package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CertificateExpires records when the TLS certificate in force ends.
func (m *Metrics) CertificateExpires(at time.Time) {
	m.certificateOnce.Do(func() {
		m.certificate = prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "snowgate_tls_certificate_not_after_timestamp_seconds",
			Help: "Unix time at which the TLS certificate in force ends; absent without TLS.",
		})
		m.registry.MustRegister(m.certificate)
	})
	m.certificate.Set(float64(at.Unix()))
}
