package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"snowgate/internal/echo"
)

const (
	loadWorkers = 8
	loadRate    = 200 // requests a second, of all workers
	quietRate   = 40  // for a service that only must not suffer
	// loadPatience is how long a request of the load may take before it counts as
	// failed; a gateway that looks for another replica may need some of it.
	loadPatience = 15 * time.Second
	// loadBody is the longest body that is sent.
	loadBody = 8 << 10
)

// outcome is what became of one request of a load.
type outcome struct {
	sent, ended time.Time
	request     string // method, connection and bytes of the body
	replica     string // host name of who answered, empty if nobody did
	failure     string // empty: it was answered as it should be
}

// load asks one path again and again at a fixed rate: by GET and by POST with a
// body, on connections that are kept and on new ones. It notes what became of
// each request, and who answered. It is safe for concurrent use.
type load struct {
	url, token string
	name       string        // of the service that must answer
	period     time.Duration // from one request of a worker to its next
	kept, once *http.Client
	cancel     context.CancelFunc
	running    sync.WaitGroup

	mu       sync.Mutex
	outcomes []outcome
}

// startLoad starts a load of url, of so many requests a second, which the service
// called name must answer. It is stopped when the test ends, if not before.
func startLoad(t *testing.T, url, token, name string, rate int) *load {
	t.Helper()
	kept := &http.Transport{MaxIdleConnsPerHost: loadWorkers, DisableCompression: true}
	once := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	l := &load{
		url: url, token: token, name: name, period: loadWorkers * time.Second / time.Duration(rate),
		kept: &http.Client{Transport: kept, Timeout: loadPatience},
		once: &http.Client{Transport: once, Timeout: loadPatience},
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = func() {
		cancel()
		l.running.Wait()
		kept.CloseIdleConnections()
	}
	for worker := range loadWorkers {
		l.running.Go(func() { l.work(ctx, worker) })
	}
	t.Cleanup(l.cancel)
	return l
}

// work sends one request after the other, none before its time, until ctx ends. Requests in flight
// at that time are waited for.
func (l *load) work(ctx context.Context, worker int) {
	next := time.NewTicker(l.period)
	defer next.Stop()
	for n := worker; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			one := l.ask(n)
			l.mu.Lock()
			l.outcomes = append(l.outcomes, one)
			l.mu.Unlock()
		}
	}
}

// ask sends the request number n; the number says what kind it is.
func (l *load) ask(n int) outcome {
	method, client, kind, size := http.MethodGet, l.kept, "kept", 0
	if n%2 == 1 {
		method, size = http.MethodPost, (n*997)%loadBody
	}
	if n%5 == 0 {
		client, kind = l.once, "new"
	}
	one := outcome{sent: time.Now(), request: fmt.Sprintf("%s on a %s connection, %d bytes", method, kind, size)}
	response, err := l.exchange(client, method, size)
	one.ended, one.replica = time.Now(), response.Hostname
	switch {
	case err != nil:
		one.failure = reason(err)
	case response.Name != l.name || response.Method != method || response.Body != int64(size):
		one.failure = fmt.Sprintf("%s answers to a %s with %d bytes", response.Name, response.Method, response.Body)
	}
	return one
}

// exchange sends one request and reads the whole response.
func (l *load) exchange(client *http.Client, method string, size int) (answer echo.Received, err error) {
	request, err := http.NewRequestWithContext(context.Background(), method, l.url, bytes.NewReader(make([]byte, size)))
	if err != nil {
		return answer, err
	}
	request.Header.Set("Authorization", "Bearer "+l.token)
	response, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return answer, fmt.Errorf("status %s: %s", response.Status, detail(body))
	}
	err = decode(response.Body, &answer)
	return answer, err
}

// decode reads one JSON document to the end of in.
func decode(in io.Reader, into any) error {
	body, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// detail returns what a problem document says, without what is different in each.
func detail(body []byte) string {
	var problem struct{ Title, Detail string }
	if json.Unmarshal(body, &problem) != nil {
		return string(body)
	}
	return strings.TrimSpace(problem.Title + " " + problem.Detail)
}

// reason sorts errors, so that equal ones can be counted.
func reason(err error) string {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no response in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused by the gateway"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset by the gateway"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed by the gateway before the end of the answer"
	}
	return err.Error()
}

// stop ends the load when all requests were answered and returns their outcomes,
// in the order in which they ended.
func (l *load) stop() []outcome {
	l.cancel()
	return l.since(time.Time{})
}

// since returns the outcomes of the requests that were sent at begin or later and
// have ended.
func (l *load) since(begin time.Time) []outcome {
	return l.those(func(o outcome) bool { return !o.sent.Before(begin) })
}

// before returns the outcomes of the requests that were sent before end and have
// ended.
func (l *load) before(end time.Time) []outcome {
	return l.those(func(o outcome) bool { return o.sent.Before(end) })
}

func (l *load) those(wanted func(outcome) bool) []outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []outcome
	for _, o := range l.outcomes {
		if wanted(o) {
			found = append(found, o)
		}
	}
	return found
}

// responses counts the good outcomes by who answered.
func responses(outcomes []outcome) map[string]int {
	counts := make(map[string]int)
	for _, o := range outcomes {
		if o.failure == "" {
			counts[o.replica]++
		}
	}
	return counts
}

// failures returns the outcomes that are not good.
func failures(outcomes []outcome) []outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(o outcome) bool { return o.failure == "" })
}

// describe counts outcomes by failure and tells the first and the last of each,
// in seconds after begin.
func describe(outcomes []outcome, begin time.Time) string {
	bad := make(map[string][]outcome)
	for _, o := range failures(outcomes) {
		bad[o.failure] = append(bad[o.failure], o)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d requests, %d failed", len(outcomes), len(failures(outcomes)))
	for _, why := range slices.Sorted(maps.Keys(bad)) {
		group := bad[why]
		first, last := group[0], group[len(group)-1]
		fmt.Fprintf(&text, "\n  %4d × %s\n         first sent at %.3f s, ended at %.3f s (%s); last ended at %.3f s",
			len(group), why, first.sent.Sub(begin).Seconds(), first.ended.Sub(begin).Seconds(), first.request, last.ended.Sub(begin).Seconds())
	}
	for _, replica := range slices.Sorted(maps.Keys(responses(outcomes))) {
		fmt.Fprintf(&text, "\n  %4d answered by %s", responses(outcomes)[replica], replica)
	}
	return text.String()
}

// lastBy returns when the last of outcomes that replica answered was sent.
func lastBy(outcomes []outcome, replica string) time.Time {
	var last time.Time
	for _, o := range outcomes {
		if o.replica == replica && o.sent.After(last) {
			last = o.sent
		}
	}
	return last
}

// slowest returns how long the slowest of outcomes took.
func slowest(outcomes []outcome) time.Duration {
	var most time.Duration
	for _, o := range outcomes {
		most = max(most, o.ended.Sub(o.sent))
	}
	return most
}

// The load must see what is wrong: otherwise no failure means nothing.
func TestLoadCountsFailures(t *testing.T) {
	good := echo.Handler("orders")
	for name, test := range map[string]struct {
		response http.HandlerFunc
		want     string // the beginning of the failure; empty: none
	}{
		"good":          {good.ServeHTTP, ""},
		"other service": {echo.Handler("billing").ServeHTTP, "billing answers"},
		"status":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "status 502"},
		"cut": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the connection is reset
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}, "connection closed"},
		"body lost": {func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.NoBody
			good.ServeHTTP(w, r)
		}, "orders answers to a POST with 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.response)
			defer server.Close()
			l := startLoad(t, server.URL, "token", "orders", 10*loadRate)
			awaitOutcomes(t, l, 40)
			outcomes := l.stop()
			host, _ := os.Hostname()
			if test.want == "" {
				if len(failures(outcomes)) > 0 || responses(outcomes)[host] != len(outcomes) {
					t.Error(describe(outcomes, outcomes[0].sent))
				}
				return
			}
			bad := failures(outcomes)
			if len(bad) == 0 || !strings.HasPrefix(bad[0].failure, test.want) {
				t.Errorf("failures want %q:\n%s", test.want, describe(outcomes, outcomes[0].sent))
			}
		})
	}
}

// awaitOutcomes waits until l has so many outcomes more.
func awaitOutcomes(t *testing.T, l *load, more int) {
	t.Helper()
	begin := time.Now()
	eventually(t, patience, fmt.Sprintf("%d more requests", more), func() bool { return len(l.since(begin)) >= more })
}
