package gatewaytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Lines returns the lines of the log with that message, so far.
func (g *Gateway) Lines(message string) []map[string]any {
	var found []map[string]any
	for line := range bytes.Lines([]byte(g.Log())) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil && fields["message"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// Alive reports whether the process still runs.
func (g *Gateway) Alive() bool {
	select {
	case <-g.exited:
		return false
	default:
		return true
	}
}

// PID returns the id of the process.
func (g *Gateway) PID() int { return g.cmd.Process.Pid }

// MemoryScale is how much more memory the gateway takes than it does for users: the
// race detector remembers for every goroutine, connection and buffer what it did.
func MemoryScale() int64 {
	if raceEnabled {
		return 10
	}
	return 1
}

// Memory returns how much memory the process has resident, in bytes. It is known on
// Linux only, and 0 elsewhere.
func (g *Gateway) Memory() int64 {
	g.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			if err != nil {
				g.t.Fatalf("VmRSS is %q", text)
			}
			return kilobytes << 10
		}
	}
	return 0
}

// WaitServed calls ask until its response has status 200 and returns how long that
// took. The test fails if it takes longer than within, or if a response on the
// way there is neither 200 nor 503.
func (g *Gateway) WaitServed(within time.Duration, what string, ask func() Response) time.Duration {
	g.t.Helper()
	begin := time.Now()
	Eventually(g.t, within, what, func() bool {
		got := ask()
		if got.StatusCode != http.StatusOK && got.StatusCode != http.StatusServiceUnavailable {
			g.t.Fatalf("%s: %d %s, want 200 or 503", what, got.StatusCode, got.Body)
		}
		return got.StatusCode == http.StatusOK
	})
	return time.Since(begin)
}

// Metrics are the series of one scrape by their whole name, labels included.
type Metrics map[string]float64

// Metrics scrapes the admin listener.
func (g *Gateway) Metrics() Metrics {
	g.t.Helper()
	found := make(Metrics)
	for line := range strings.Lines(g.ScrapeText()) {
		line = strings.TrimSuffix(line, "\n")
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			g.t.Fatalf("/metrics has the line %q", line)
		}
		found[line[:i]] = value
	}
	return found
}

// ScrapeText returns the text of /metrics on the admin listener.
func (g *Gateway) ScrapeText() string {
	g.t.Helper()
	got := g.GetAdmin("/metrics")
	if got.StatusCode != http.StatusOK {
		g.t.Fatalf("GET /metrics = %d %s", got.StatusCode, got.Body)
	}
	return got.Body
}

// GetAdmin asks the admin listener for path.
func (g *Gateway) GetAdmin(path string) Response {
	g.t.Helper()
	request := g.Request(http.MethodGet, "", nil)
	request.URL.Scheme = "http" // whatever the public listener speaks
	request.URL.Host, request.Host = strings.TrimPrefix(g.AdminURL, "http://"), ""
	request.URL.Path = path
	return g.Do(request)
}

// Sum adds up the series called name that have all of the labels, each given
// like route="token".
func (m Metrics) Sum(name string, labels ...string) float64 {
	var sum float64
	for series, value := range m {
		if series == name || strings.HasPrefix(series, name+"{") && hasAll(series, labels) {
			sum += value
		}
	}
	return sum
}

func hasAll(series string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(series, "{"+label) && !strings.Contains(series, ","+label) {
			return false
		}
	}
	return true
}
