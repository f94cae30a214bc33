package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"snowgate/tokens"
)

const onWorker = `{"worker":7,"from":"2026-06-01T10:00:00Z","until":"2026-06-01T11:00:00Z"}`

// TestDryRun: a dry run counts, continues from a cursor, and leaves neither a rule nor an audit
// line.
func TestDryRun(t *testing.T) {
	tests := []struct {
		why, query, body string
		status           int
		want             string
	}{
		{"the first step", "dry_run=true", onWorker, 200, `"count":{"live_tokens":0,"seen":5,"next":"0.17"}`},
		{"the last step", "dry_run=true&cursor=0.17", onWorker, 200, `"count":{"live_tokens":1,"seen":1}`},
		{"another cursor", "dry_run=true&cursor=0.18", onWorker, 400, "cursor"},
		{"everything before", "dry_run=true&cursor=0.17", `{"before":"2026-06-01T12:00:00Z"}`, 200, `"live_tokens":1`},
		{"a good token", "dry_run=true", `{"token":"` + aToken + `"}`, 200, `"count":{"live_tokens":1,"seen":1}`},
		{"no token", "dry_run=true", `{"token":"0000000000Z"}`, 200, `"count":{"live_tokens":0,"seen":1}`},
		{"a client", "dry_run=true", `{"client":"orders"}`, 422, "ids do not tell the client"},
		{"the future", "dry_run=true", `{"before":"2026-06-01T12:00:01Z"}`, 422, "later than the clock"},
		{"no such worker", "dry_run=true", strings.Replace(onWorker, "7", "1024", 1), 422, "/worker"},
		{"mistyped", "dryrun=true", onWorker, 400, "The query has faults."},
		{"mistyped value", "dry_run=yes", onWorker, 400, "true or false"},
		{"twice", "dry_run=true&dry_run=false", onWorker, 400, "once at most"},
		{"a cursor without a dry run", "cursor=0.17", onWorker, 400, "needs dry_run=true"},
	}
	for _, tt := range tests {
		b := newBench(t)
		got := b.do("POST", "/revocations?"+tt.query, tt.body)
		if got.Code != tt.status || !strings.Contains(got.Body.String(), tt.want) {
			t.Errorf("%s: %d %s, want %d and %q", tt.why, got.Code, got.Body, tt.status, tt.want)
		}
		if lines := b.audit(); len(lines) != 0 || len(b.tokens.rules.Rules) != 0 || len(b.tokens.tokens) != 1 {
			t.Errorf("%s: changed something: %v, rules %v", tt.why, lines, b.tokens.rules.Rules)
		}
	}
	b := newBench(t)
	if got := b.do("POST", "/revocations?dry_run=false", onWorker); got.Code != http.StatusCreated || len(b.tokens.rules.Rules) != 1 {
		t.Errorf("dry_run=false: %d %s", got.Code, got.Body)
	}
	b.tokens.err = fmt.Errorf("%w: %w", tokens.ErrUnavailable, errStore)
	if got := b.do("POST", "/revocations?dry_run=true", onWorker); got.Code != http.StatusServiceUnavailable {
		t.Errorf("without Redis: %d %s", got.Code, got.Body)
	}
}
