package foreign_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// TestH2load sends many requests with h2load; none may fail.
func TestH2load(t *testing.T) {
	t.Parallel()
	program := gatewaytest.Require(t, "h2load", "nghttp2-client")
	s := newStage(t, http.HandlerFunc(serveFiles))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, block[:20_000], 0o600); err != nil {
		t.Fatal(err)
	}
	amount := amountOf(500, 2000, 10_000)
	for _, way := range []struct {
		name string
		url  string
		args []string
	}{
		{"HTTP/1.1", s.plain, []string{"--h1"}},
		{"HTTP/2", s.plain, []string{"-m", "16"}},
		{"HTTP/2 with TLS", s.secure, []string{"-m", "16"}},
		{"HTTP/1.1, 20 KB up", s.plain, []string{"--h1", "-d", file}},
		{"HTTP/2, 20 KB up", s.plain, []string{"-m", "16", "-d", file}},
		{"HTTP/2, small windows", s.plain, []string{"-m", "4", "-w", "14", "-W", "15"}},
	} {
		path := "/gzip"
		if strings.Contains(way.name, "up") {
			path = "/told"
		}
		begin := time.Now()
		args := append([]string{"-n", strconv.Itoa(amount), "-c", "8", "-T", "60", "-N", "60"}, way.args...)
		out, err := exec.CommandContext(t.Context(), program, append(args, way.url+path)...).CombinedOutput()
		want := fmt.Sprintf("requests: %d total, %[1]d started, %[1]d done, %[1]d succeeded, 0 failed, 0 errored, 0 timeout", amount)
		codes := fmt.Sprintf("status codes: %d 2xx, 0 3xx, 0 4xx, 0 5xx", amount)
		if err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), codes) {
			t.Errorf("h2load %q: %v, want %q and %q in\n%s", args, err, want, codes, out)
		}
		record(t, "h2load, "+way.name, strconv.Itoa(amount)+" requests", time.Since(begin))
	}
}

// TestNghttp uses what nghttp can do with frames and other clients do not.
func TestNghttp(t *testing.T) {
	t.Parallel()
	program := gatewaytest.Require(t, "nghttp", "nghttp2-client")
	s := newStage(t, http.HandlerFunc(serveFiles))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	told := func(method string, length int) string {
		want := ""
		for _, test := range curlCases() {
			if test.name == "POST" {
				want = string(test.want)
			}
		}
		return strings.Replace(strings.Replace(want, "POST", method, 1), strconv.Itoa(len(block)), strconv.Itoa(length), 1)
	}
	for _, test := range []struct {
		name, path string
		args       []string
		want       string
	}{
		{"GET", "/file", nil, string(block)},
		{"twenty at once", "/gzip", []string{"-m", "20"}, strings.Repeat(string(block[:1000]), 2000)}, // it decompresses
		{"the smallest windows", "/file", []string{"-w", "10", "-W", "11"}, string(block)},
		{"a header in CONTINUATION", "/file", []string{"--continuation"}, string(block)},
		{"padding", "/told", []string{"-b", "200", "-d", file}, told("POST", len(block))},
		{"POST", "/told", []string{"-d", file}, told("POST", len(block))},
		{"POST with Expect", "/told", []string{"-d", file, "--expect-continue"}, told("POST", len(block))},
		{"POST with a trailer", "/told", []string{"-d", file, "--trailer", "x-tail: 1"}, told("POST", len(block))},
		{"POST without a length", "/told", []string{"-d", file, "--no-content-length"}, told("POST", -1)},
		{"a small table of fields", "/file", []string{"-c", "0"}, string(block)},
	} {
		for _, url := range []string{s.plain, s.secure} {
			args := append([]string{"-t", "30", "-y"}, test.args...)
			out, err := exec.CommandContext(t.Context(), program, append(args, url+test.path)...).Output()
			if err != nil || string(out) != test.want {
				t.Errorf("nghttp %s, %s: %v %s; %d bytes (%.100q), want %d (%.100q)", test.name, url, err, stderrOf(err), len(out), out, len(test.want), test.want)
			}
		}
	}
}
