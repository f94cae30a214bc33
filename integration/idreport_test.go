package integration_test

import (
	"encoding/json"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// idReport is what /admin/v1/health tells of the generator.
type idReport struct {
	Healthy                      bool
	Reason                       string
	Worker                       *int64
	LastHeartbeat                time.Time `json:"last_heartbeat"`
	Generated, Errors, Rollbacks int64
}

func (a *administered) idReport() idReport {
	a.t.Helper()
	got := a.ask("GET", "/health", "")
	var health struct {
		IDs *idReport `json:"ids"`
	}
	if err := json.Unmarshal([]byte(got.Body), &health); err != nil || health.IDs == nil {
		a.t.Fatalf("GET /health = %d %s, want ids in it", got.StatusCode, got.Body)
	}
	return *health.IDs
}

// System B's report: healthy, worker number, time of the last heartbeat, ids generated, errors.
func TestAdminHealthReportsTheGenerator(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	g := startAdministered(t, redis, 1, administrator(), gatewaytest.NewRecorder(t, ""), "SNOWGATE_WORKER_ID=lease", "SNOWGATE_ID_ROLLBACK=fail")
	before := g.idReport()
	if !before.Healthy || before.Reason != "" || before.Worker == nil || *before.Worker != 0 || time.Since(before.LastHeartbeat) > patience {
		t.Errorf("the report is %+v, want healthy, worker 0 and a heartbeat of late", before)
	}
	const tokens = 3
	for range tokens {
		g.Token(fileClient)
	}
	gatewaytest.Eventually(t, patience, "the next heartbeat is told", func() bool {
		return g.idReport().LastHeartbeat.After(before.LastHeartbeat)
	})
	if after := g.idReport(); after.Generated != before.Generated+tokens || after.Errors != before.Errors {
		t.Errorf("%d tokens later the report is %+v, before it was %+v", tokens, after, before)
	}

	redis.Freeze()
	defer redis.Resume()
	gatewaytest.Eventually(t, patience, "a failed heartbeat is counted", func() bool { return g.idReport().Errors > before.Errors })
	silent := g.idReport()
	if !silent.LastHeartbeat.Before(time.Now()) || silent.Worker == nil {
		t.Errorf("without Redis the report is %+v, want the number that is still held", silent)
	}
}
