package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestRun: packages as go test shows them, the output of what failed, and one line about what was skipped.
func TestRun(t *testing.T) {
	const (
		passed = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: SKIPPED, NOT TESTED: redis-server is not in PATH (Debian: apt-get install redis-server)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    SKIPPED, NOT TESTED: no Docker engine answers: dial unix\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    SKIPPED, NOT TESTED: redis-server is not in PATH (Debian: apt-get install redis-server)\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    set -torture.for\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`
		failing = `{"Action":"output","Package":"q","Test":"TestE","Output":"    e_test.go:1: wrong\n"}
{"Action":"fail","Package":"q","Test":"TestE"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q"}
go: a word of its own
`
		summary = "skipped 4 tests: 2 because redis-server is not in PATH (Debian: apt-get install redis-server); " +
			"1 because no Docker engine answers; 1 that run on request only, or cannot run this way\n"
	)
	for _, tt := range []struct {
		in, want string
		failed   bool
	}{
		{passed, "ok  \tp\t0.1s\n" + summary, false},
		{failing, "    e_test.go:1: wrong\nFAIL\tq\t0.1s\ngo: a word of its own\n", true},
		{`{"Action":"build-output","ImportPath":"q","Output":"q.go:1: no\n"}` + "\n" + `{"Action":"build-fail","ImportPath":"q"}`, "q.go:1: no\n", true},
		{passed + failing, "ok  \tp\t0.1s\n    e_test.go:1: wrong\nFAIL\tq\t0.1s\ngo: a word of its own\n" + summary, true},
	} {
		var out bytes.Buffer
		if failed := run(strings.NewReader(tt.in), &out); failed != tt.failed || out.String() != tt.want {
			t.Errorf("failed: %v, want %v\n got %q\nwant %q", failed, tt.failed, out.String(), tt.want)
		}
	}
}
