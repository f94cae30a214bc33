package integration_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// wireFault is a fault of the connections between a gateway and Redis, made by toxiproxy.
type wireFault struct {
	name  string
	toxic string // in toxiproxy's JSON; empty: the proxy is stopped
	away  bool   // Redis cannot be used meanwhile
	works bool   // it can be used as if nothing were wrong
}

var wireFaults = []wireFault{
	{"2 s of latency", `{"name":"x","type":"latency","attributes":{"latency":2000}}`, true, false},
	{"latency of 0 to 100 ms", `{"name":"x","type":"latency","attributes":{"latency":50,"jitter":50}}`, false, true},
	{"1 KB a second", `{"name":"x","type":"bandwidth","attributes":{"rate":1}}`, false, false},
	{"slices of a few bytes", `{"name":"x","type":"slicer","attributes":{"average_size":7,"size_variation":5,"delay":100}}`, false, true},
	{"half-open: replies are lost", `{"name":"x","type":"timeout","attributes":{"timeout":0}}`, true, false},
	{"half-open: commands are lost", `{"name":"x","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`, true, false},
	{"reset in the middle of a reply", `{"name":"x","type":"limit_data","attributes":{"bytes":150}}`, false, false},
	{"reset at once", `{"name":"x","type":"reset_peer","attributes":{"timeout":0}}`, true, false},
	{"down", "", true, false},
}

// decisionMade is one decision about a token.
type decisionMade struct {
	status int
	good   bool // the token is good
	took   time.Duration
	ended  time.Time
}

// TestFaultsOnTheWire: whatever happens to the connections to Redis, a good token is never refused
// with 401 and a revoked one never accepted; no decision takes longer than SNOWGATE_STORE_TIMEOUT;
// when Redis is known to be away, decisions are fast; and afterwards everything works again soon.
func TestFaultsOnTheWire(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "what is measured is the way to Redis")
	server := redistest.Start(t) // of all: each gateway has a wire of its own
	for i, fault := range wireFaults {
		t.Run(fault.name, func(t *testing.T) { t.Parallel(); testWireFault(t, server, fmt.Sprint(i+1), fault) })
	}
}

func testWireFault(t *testing.T, server *redistest.Server, worker string, fault wireFault) {
	const (
		timeout = 250 * time.Millisecond
		slack   = 500 * time.Millisecond // of a busy machine
		length  = 3 * time.Second
	)
	wire := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "redis", "127.0.0.1:0", server.Addr())
	if err := wire.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Stop)
	s := newScene(t, server, gatewaytest.Options{Env: []string{
		"SNOWGATE_REDIS_URL=" + strings.Replace(server.URL(), server.Addr(), wire.Listen, 1), "SNOWGATE_STORE_TIMEOUT=" + timeout.String(),
		"SNOWGATE_WORKER_ID=" + worker,
	}})
	revoked := s.Token(s.client)
	if status, body := s.Post("/oauth2/revoke", s.client, "token", revoked); status != http.StatusOK {
		t.Fatalf("revoke: %d %s", status, body)
	}

	mend := breakWire(t, wire, fault)
	begun := time.Now()
	verdicts := s.decideFor(length, revoked)
	mend()
	mended := time.Now()
	gatewaytest.Eventually(t, patience, "tokens are accepted again", func() bool { return s.Get("/orders/1", s.token).StatusCode == http.StatusOK })
	back := time.Since(mended)

	var late []time.Duration // of those that were decided when Redis was known to be away
	served := 0
	for _, v := range verdicts {
		switch {
		case v.good && v.status == http.StatusOK:
			served++
		case v.status == http.StatusServiceUnavailable, !v.good && v.status == http.StatusUnauthorized:
		default:
			t.Errorf("a token (good: %t) is answered with %d", v.good, v.status)
		}
		if v.took > timeout+slack {
			t.Errorf("a decision took %v, want at most %v", v.took, timeout)
		}
		if v.ended.Sub(begun) > length/2 {
			late = append(late, v.took)
		}
	}
	median := percentile(late, 50)
	t.Logf("%d decisions, %d accepted; half of those in the second half took at most %v; back after %v", len(verdicts), served, median, back)
	if fault.works && served < len(verdicts)*4/10 { // half of the tokens are revoked
		t.Errorf("%d of %d decisions accepted a token, want nearly all good ones", served, len(verdicts))
	}
	if fault.away && (served > 0 && fault.toxic == "" || median > 50*time.Millisecond) {
		t.Errorf("Redis is away: %d tokens accepted, and half of the decisions take more than %v", served, median)
	}
	if back > time.Second+slack {
		t.Errorf("tokens are accepted again after %v, want a second", back)
	}
}

// breakWire makes a fault, and returns what ends it.
func breakWire(t *testing.T, wire *toxiproxy.Proxy, fault wireFault) (mend func()) {
	t.Helper()
	if fault.toxic == "" {
		wire.Stop()
		return func() {
			if err := wire.Start(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := wire.Toxics.AddToxicJson(strings.NewReader(fault.toxic)); err != nil {
		t.Fatal(err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := wire.Toxics.RemoveToxic(ctx, "x"); err != nil {
			t.Error(err)
		}
	}
}

// decideFor asks for decisions about the scene's token and the revoked one, from four callers.
func (s *scene) decideFor(length time.Duration, revoked string) (all []decisionMade) {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	end := time.Now().Add(length)
	for range 4 {
		wg.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				token := s.token
				if n%2 == 1 {
					token = revoked
				}
				begin := time.Now()
				status := s.Get("/orders/1", token).StatusCode
				v := decisionMade{status, token == s.token, time.Since(begin), time.Now()}
				mu.Lock()
				all = append(all, v)
				mu.Unlock()
				<-time.After(2 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b decisionMade) int { return cmp.Compare(a.ended.UnixNano(), b.ended.UnixNano()) })
	return all
}
