package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"snowgate/config"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
)

// TestReadinessOfConditions: what /readyz says in each state of the worker number.
func TestReadinessOfConditions(t *testing.T) {
	worker := int64(3)
	well := idgen.Health{Healthy: true}
	ill := idgen.Health{Err: idgen.ErrNoWorker}
	full := fmt.Errorf("%w: %w", idgen.ErrNoWorker, redislease.ErrAllTaken)
	tests := map[string]struct {
		condition               condition
		ready, deciding, issues bool
		missing, reason         string
	}{
		"all is well":                  {condition{ids: well, worker: &worker, once: true}, true, true, true, "", ""},
		"it issues for the first time": {condition{ids: well, worker: &worker}, true, true, true, "", ""},
		"it never could issue":         {condition{ids: ill}, false, true, false, "first token", "no worker number"},
		"the number was lost":          {condition{ids: ill, trouble: full, once: true, lost: numberBound}, true, true, false, "", "all worker numbers are taken"},
		"it was lost long ago":         {condition{ids: ill, trouble: full, once: true, lost: numberBound + 1}, false, true, false, "worker number", "all worker numbers are taken"},
		"another one is held":          {condition{ids: well, worker: &worker, once: true, lost: time.Hour}, true, true, true, "", ""},
		"it cannot decide":             {condition{missing: []string{"redis"}, ids: well, worker: &worker, once: true}, false, false, false, "redis", ""},
	}
	for name, tt := range tests {
		got := tt.condition.readiness()
		if got.Ready != tt.ready || got.Deciding.Ready != tt.deciding || got.Issuing.Ready != tt.issues {
			t.Errorf("%s: %+v", name, got)
		}
		named := slices.ContainsFunc(got.Missing, func(m string) bool { return strings.Contains(m, tt.missing) })
		if tt.missing == "" && len(got.Missing) > 0 || tt.missing != "" && !named {
			t.Errorf("%s: missing %q, want %q", name, got.Missing, tt.missing)
		}
		if !strings.Contains(got.Issuing.Missing, tt.reason) {
			t.Errorf("%s: issuing misses %q, want %q", name, got.Issuing.Missing, tt.reason)
		}
	}
}

// TestHopeless: a gateway gives up at the start if trying again is of no use. A number that is
// leased is not hopeless as long as its holder may be dead.
func TestHopeless(t *testing.T) {
	taken := func(left time.Duration) error {
		return &redislease.TakenError{Worker: 7, Holder: "other:1:2 at 10.0.0.2:8080", Left: left, Until: time.Unix(1e9, 0).Add(left)}
	}
	cfg := config.Config{WorkerID: config.WorkerID{Source: config.WorkerIPv4}}
	for name, tt := range map[string]struct {
		errors []error
		want   string
	}{
		// However late a reply is looked at, a lease that was not extended ends at the same instant.
		"of a dead holder":   {[]error{taken(time.Minute), taken(time.Minute), taken(time.Minute)}, ""},
		"of a living holder": {[]error{taken(time.Minute), taken(time.Minute + time.Second)}, "SNOWGATE_WORKER_ID=ipv4"},
		"a damaged file":     {[]error{fmt.Errorf("x: %w", idgen.ErrCorrupt)}, "corrupt"},
		"no directory":       {[]error{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}}, "SNOWGATE_STATE_FILE"},
		"used up":            {[]error{redislease.ErrExhausted}, "used up"},
		"all taken":          {[]error{redislease.ErrAllTaken, redislease.ErrAllTaken}, ""},
		"trouble with Redis": {[]error{errors.New("dial"), idgen.ErrClock}, ""},
	} {
		var watch numberWatch
		var got error
		for _, err := range tt.errors {
			got = watch.hopeless(cfg, err)
		}
		if (got == nil) != (tt.want == "") || got != nil && !strings.Contains(got.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, got, tt.want)
		}
	}
}
