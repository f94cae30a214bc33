package telemetry

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	m := New("v", "c")
	l := m.NewLimits()
	l.Decided("client_rate", true)
	l.Decided("client_rate", false)
	l.Decided("client_rate", false)
	l.FellBack("slow")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`snowgate_limit_decisions_total{kind="client_rate",outcome="allowed"} 1`,
		`snowgate_limit_decisions_total{kind="client_rate",outcome="refused"} 2`,
		`snowgate_limit_fallbacks_total{reason="slow"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}
