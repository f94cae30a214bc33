package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseLoadGenerators(t *testing.T) {
	for _, c := range []struct {
		name   string
		parse  func(string) (int64, error)
		output string
		want   int64
		fault  string // part of the error
	}{
		{"wrk", parseWrk, "  1 threads and 32 connections\n  36123 requests in 2.00s, 9.96MB read\nRequests/sec:  18048.25\n", 36123, ""},
		{"wrk, refusals", parseWrk, "  36123 requests in 2.00s, 9.96MB read\n  Non-2xx or 3xx responses: 17\n", 0, "17"},
		{"wrk, nothing", parseWrk, "  0 requests in 2.00s, 0.00B read\n", 0, "nothing was answered"},
		{"wrk, no route", parseWrk, "unable to connect to 127.0.0.1:1 Connection refused\n", 0, "no number"},
		{"h2load", parseH2load, "requests: 51234 total, 51266 started, 51234 done, 51234 succeeded, 0 failed, 0 errored, 0 timeout\n", 51234, ""},
		{"wrk, statuses", parseStatuses, "status 200: 90\nstatus 503: 10\n", 0, "status 200: 90, status 503: 10"},
		{"h2load, statuses", parseH2load, "requests: 9 total, 9 started, 9 done, 0 succeeded, 9 failed, 0 errored, 0 timeout\nstatus codes: 0 2xx, 0 3xx, 9 4xx, 0 5xx\n", 0, "9 4xx"},
		{"h2load, failures", parseH2load, "requests: 100 total, 100 started, 100 done, 90 succeeded, 10 failed, 10 errored, 0 timeout\n", 0, "90 went well"},
	} {
		got, err := c.parse(c.output)
		if c.fault == "" && (got != c.want || err != nil) {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
		if c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.fault)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		figures series
		share   float64
		want    float64
	}{
		{nil, 0.5, 0},
		{series{3}, 0.25, 3},
		{series{4, 1, 3}, 0.5, 3},
		{series{4, 1, 3, 2}, 0.5, 2.5},
		{series{5, 1, 2, 4, 3}, 0.25, 2},
		{series{5, 1, 2, 4, 3}, 1, 5},
	} {
		if got := c.figures.quantile(c.share); got != c.want {
			t.Errorf("%v: quantile(%v) = %v, want %v", c.figures, c.share, got, c.want)
		}
	}
}

func TestOverPairsRounds(t *testing.T) {
	// The second round was twice as slow for both: the ratio does not see it.
	if got := (series{30, 60}).over(series{40, 80}).spread(2); got != "0.75 – 0.75" {
		t.Errorf("spread of the ratios = %s", got)
	}
}

// Every placeholder of every configuration is known; a misspelt one is an error
// and not a line that a contestant ignores.
func TestPlaceholders(t *testing.T) {
	s := &site{dir: t.TempDir(), upstream: "127.0.0.1:1"}
	values := map[string]string{"PORT": "2", "TLS_PORT": "3", "REDIS_PORT": "4", "SNOWGATE": "127.0.0.1:5", "DIGEST": "0"}
	files, err := configurations.ReadDir("conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		path, err := s.configure(file.Name(), values)
		if err != nil {
			t.Error(err)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) == 0 || filepath.Dir(path) != s.dir {
			t.Errorf("%s: %d bytes, %v", path, len(text), err)
		}
		if _, err := s.fill(file.Name(), nil); err == nil && file.Name() != "upstream.conf" {
			t.Errorf("%s has no placeholder, or one without a value is no error", file.Name())
		}
	}
}
