package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// monitor reads every command that a Redis executes.
type monitor struct {
	mu    sync.Mutex
	lines []string
}

func newMonitor(t *testing.T, server *redistest.Server) *monitor {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nMONITOR\r\n", server.Password()); err != nil {
		t.Fatal(err)
	}
	m := new(monitor)
	go func() {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			m.mu.Lock()
			m.lines = append(m.lines, lines.Text())
			m.mu.Unlock()
		}
	}()
	m.sync(t, server) // it has begun
	return m
}

// sync returns when everything that was executed so far has been read.
func (m *monitor) sync(t *testing.T, server *redistest.Server) {
	t.Helper()
	mark := strconv.FormatUint(rand.Uint64(), 36)
	gatewaytest.Eventually(t, 10*time.Second, "MONITOR is read", func() bool {
		server.Do("ECHO", mark)
		return m.count(mark) > 0
	})
}

// count returns how many commands have text in them.
func (m *monitor) count(text string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, line := range m.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// ofRecords are the commands that concern the records of tokens.
const ofRecords = `"sg:t:`

// TestCacheHitCostsNoCommand: a validated token costs no Redis call; what is left
// is the confirmation of the rules, twice a second.
func TestCacheHitCostsNoCommand(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "the requests take longer than the cache keeps a token")
	t.Parallel()
	const requests = 200
	f := newFleetOf(t, fleetOptions{size: 1, env: []string{"SNOWGATE_CACHE_TTL=1m"}})
	token := f.token()
	m := newMonitor(t, f.redis)
	before, begin := m.count(""), time.Now()
	for range requests {
		f.wantAll("a cached token", token, http.StatusOK)
	}
	took := time.Since(begin)
	m.sync(t, f.redis)
	if n := m.count(ofRecords); n > 0 {
		t.Errorf("%d requests with a cached token: %d commands for records, want none", requests, n)
	}
	// A script shows as itself and as what it calls.
	all, most := m.count("")-before, 50+int(30*took.Seconds())
	t.Logf("%d requests in %v, %d commands of the background", requests, took, all)
	if all > most {
		t.Errorf("%d requests with a cached token: %d commands in %v, want at most %d", requests, all, took, most)
	}
}

// TestFirstUsesShareOneLookUp: many callers show a token for the first time at
// once. Redis is asked a few times, and that the caller who asked first goes away
// is nothing to the others.
func TestFirstUsesShareOneLookUp(t *testing.T) {
	t.Parallel()
	const callers = 500
	f := newFleetOf(t, fleetOptions{size: 2})
	f.transport.MaxIdleConnsPerHost = callers
	warm := f.issue(0, f.client)
	var warming sync.WaitGroup
	for range callers { // so that the connections are there
		warming.Go(func() { _, _ = f.ask(1, "/svc/x", warm) })
	}
	warming.Wait()
	token := f.issue(0, f.client)
	m := newMonitor(t, f.redis)
	lookups := func() float64 { return f.gateways[1].Metrics().Sum("snowgate_token_cache_lookups_total") }
	before := lookups()
	f.cables[1].Delay(time.Second)

	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() {
		request := f.gateways[1].Request(http.MethodGet, "/svc/x", nil).WithContext(ctx)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := new(http.Transport).RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
		}
		first <- err
	}()
	gatewaytest.Eventually(t, stallTime*5, "the first caller is looked after", func() bool { return lookups() > before })
	var mu sync.Mutex
	var wg sync.WaitGroup
	statuses := make(map[int]int)
	for range callers {
		wg.Go(func() {
			got, err := f.ask(1, "/svc/x", token)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[got.status]++
		})
	}
	gatewaytest.Eventually(t, stallTime*5, "all are looked after", func() bool { return lookups() > before+callers })
	cancel()
	if err := <-first; err == nil {
		t.Error("the first caller was answered before it went away: the test shows nothing")
	}
	wg.Wait()
	if statuses[http.StatusOK] != callers {
		t.Errorf("%d callers were answered %v, want 200", callers, statuses)
	}
	f.cables[1].Delay(0)
	m.sync(t, f.redis)
	n := m.count(ofRecords + tokenID(token))
	t.Logf("%d first uses: %d commands", callers+1, n)
	if n == 0 || n > 5 {
		t.Errorf("%d first uses: %d commands for the record, want a few", callers+1, n)
	}
}

// TestDeletedByHand: a record is deleted in Redis by an operator who tells nobody,
// and pushes are cut besides. The cached token dies within the bound.
func TestDeletedByHand(t *testing.T) {
	t.Parallel()
	const bound = time.Second
	f := newFleetOf(t, fleetOptions{size: 1, env: []string{"SNOWGATE_CACHE_TTL=1s"}})
	f.cables[0].FreezePushes()
	token := f.token()
	l := f.load(token, 2)
	gatewaytest.Eventually(t, stallTime*5, "the load is served", func() bool { return l.count(0, http.StatusOK) > 10 })
	f.redis.Do("DEL", "sg:t:"+tokenID(token))
	deleted := time.Now()
	gatewaytest.Eventually(t, stallTime*5, "the token is refused", func() bool { return l.count(0, http.StatusUnauthorized) > 10 })
	responses := l.end()
	late := lag(responses, 0, deleted)
	t.Logf("served for %v", late)
	if late > bound {
		t.Errorf("a request that began %v after the record was deleted was served, want at most %v", late, bound)
	}
	wantNoOther(t, "deleted by hand", responses)
}

// TestForgedPushes: whoever can publish gets nothing but a look at what is there.
func TestForgedPushes(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, fleetOptions{size: 1, env: []string{"SNOWGATE_CACHE_TTL=1m"}})
	token := f.token()
	garbled := []string{
		"", " ", "token", "token ", "token x 1", "rules", "rules -1 1", "rules 1e3 1", "client 7 1",
		"unknown 1 2", "token " + tokenID(token), "token " + tokenID(token) + " 1 2", "\x00\xff\xfe", "{}",
		strings.Repeat("token ", 10_000), "TOKEN " + tokenID(token) + " 1",
	}
	for _, message := range garbled {
		f.redis.Do("PUBLISH", "{sg}:push", message)
	}
	gatewaytest.Eventually(t, stallTime*5, "garbled messages are counted", func() bool {
		return f.gateways[0].Metrics().Sum("snowgate_push_garbled_total") == float64(len(garbled))
	})
	forged := []string{
		"token " + tokenID(token) + " 1", "token zzzzzzzzzzz 1", "rules 9007199254740991 1", "rules 1 99999999999999",
		"client worker 9007199254740991 1", "client nobody 1 1", "keys 9007199254740991 1", "keys 1 1",
	}
	for _, message := range forged {
		f.redis.Do("PUBLISH", "{sg}:push", message)
	}
	for range 20 {
		f.wantAll("a good token among forged messages", token, http.StatusOK)
	}
	if lines := f.gateways[0].Lines("panic"); len(lines) > 0 || !f.gateways[0].Alive() {
		t.Error("the gateway did not take it well")
	}
	another := f.token()
	f.revoke(0, another)
	f.wantAll("a revoked token", another, http.StatusUnauthorized)
	f.wantAll("a good token", token, http.StatusOK)
}

// countOf returns the number in an environment variable, for what takes too long
// to be done every time.
func countOf(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// flood sends count requests with the tokens that next makes from several
// callers, and returns how often it got which response.
func (f *fleet) flood(count int, next func(n int) string) map[int]int {
	f.t.Helper()
	const callers = 4
	var mu sync.Mutex
	var wg sync.WaitGroup
	statuses := make(map[int]int)
	for caller := range callers {
		wg.Go(func() {
			for n := caller; n < count; n += callers {
				got, err := f.ask(0, "/svc/x", next(n))
				if err != nil {
					f.t.Error(err)
					return
				}
				mu.Lock()
				statuses[got.status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return statuses
}

// growth is how much more memory a flood may leave behind: it is a fraction of
// what the tokens of a full-size one would need.
const growth = 64 << 20

// TestFloodOfForgedTokens: tokens that no gateway made cost no command, leave no
// trace in memory, and do not push good ones out of the cache.
// SNOWGATE_TEST_FLOOD says how many.
func TestFloodOfForgedTokens(t *testing.T) {
	t.Parallel()
	count := countOf(t, "SNOWGATE_TEST_FLOOD", 2000)
	f := newFleetOf(t, fleetOptions{size: 1, env: []string{"SNOWGATE_CACHE_TTL=1h", "SNOWGATE_CACHE_SIZE=100"}})
	good := f.token()
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	forged := func(n int) string {
		token := []byte(good)
		for i, rest := 0, n; i < 4; i++ {
			c := alphabet[rest%len(alphabet)]
			token[len("sgt_")+10-i] = c // in the id: other tokens of about the same time
			token[20+i] = c             // and in the secret
			rest /= len(alphabet)
		}
		return string(token)
	}
	f.flood(500, forged) // to its working size
	memory := f.gateways[0].Memory()
	m := newMonitor(t, f.redis)
	begin := time.Now()
	statuses := f.flood(count, forged)
	took := time.Since(begin)
	for range 20 {
		f.wantAll("a good token after the flood", good, http.StatusOK)
	}
	m.sync(t, f.redis)
	grown := f.gateways[0].Memory() - memory
	t.Logf("%d forged tokens in %v: %d commands for records, %d MiB more", count, took, m.count(ofRecords), grown>>20)
	if statuses[http.StatusUnauthorized] != count {
		t.Errorf("forged tokens were answered %v, want 401", statuses)
	}
	if n := m.count(ofRecords); n > 0 {
		t.Errorf("%d commands for records, want none", n)
	}
	if grown > growth {
		t.Errorf("the gateway has grown by %d MiB", grown>>20)
	}
}

// counter makes ids backwards in time from one that a gateway has made.
type counter struct {
	mu   sync.Mutex
	last idgen.ID
}

func (c *counter) Next(context.Context) (idgen.ID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last -= 1 << 12 // another worker, or a millisecond earlier
	return c.last, nil
}

// newMint returns a service that makes tokens with the key of the gateways, and
// tells Redis nothing of them.
func newMint(t *testing.T, f *fleet, like string) *tokens.Service {
	t.Helper()
	store, err := redisstore.Open(redisstore.Options{URL: f.redis.URL(), Prefix: "sg", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	keys := tokens.NewKeyring(tokens.KeyringConfig{Store: store})
	if err := keys.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, err := idgen.Parse(tokenID(like))
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	mint := tokens.NewService(tokens.Config{
		Store: tokenstest.NewStore(time.Now), Keys: keys, IDs: &counter{last: last},
		MintTime: func(id idgen.ID) time.Time { return epoch.Add(time.Duration(id>>22) * time.Millisecond) },
	})
	t.Cleanup(mint.Close)
	return mint
}

// TestFloodOfUnknownTokens: with the real key, tokens can be made that have to be
// looked up, each for itself. Beyond the limit they are answered with 429; they leave
// no trace in memory, and do not push good ones out of the cache.
// SNOWGATE_TEST_FLOOD says how many.
func TestFloodOfUnknownTokens(t *testing.T) {
	t.Parallel()
	const allowed = 100
	count := countOf(t, "SNOWGATE_TEST_FLOOD", 2000)
	f := newFleetOf(t, fleetOptions{size: 1, env: []string{
		"SNOWGATE_CACHE_TTL=1h", "SNOWGATE_CACHE_SIZE=100",
		fmt.Sprintf("SNOWGATE_UNKNOWN_TOKEN_RATE=%d/h", allowed),
	}})
	good := f.token()
	mint := newMint(t, f, good)
	unknown := func(int) string {
		bearer, _, err := mint.Issue(context.Background(), tokens.Claims{Client: "worker", Scope: scope.Of("svc"), TTL: time.Hour})
		if err != nil {
			t.Error(err)
		}
		return bearer.Reveal()
	}
	m := newMonitor(t, f.redis)
	warm := count
	statuses := f.flood(warm, unknown) // to its working size: each is looked up, so that takes a while
	memory := f.gateways[0].Memory()
	begin := time.Now()
	for status, n := range f.flood(count, unknown) {
		statuses[status] += n
	}
	took := time.Since(begin)
	for range 20 {
		f.wantAll("a good token after the flood", good, http.StatusOK)
	}
	m.sync(t, f.redis)
	grown := f.gateways[0].Memory() - memory
	commands := m.count(ofRecords)
	t.Logf("%d unknown tokens in %v: answers %v, %d commands for records, %d MiB more", count+warm, took, statuses, commands, grown>>20)
	if statuses[http.StatusUnauthorized] == 0 || statuses[http.StatusTooManyRequests] < count/2 || statuses[http.StatusOK] > 0 {
		t.Errorf("unknown tokens were answered %v, want 401 and then 429", statuses)
	}
	if most := 2*(count+warm) + 8; commands > most { // that one is unknown is confirmed
		t.Errorf("%d commands for records, want at most %d", commands, most)
	}
	if most := growth * min(gatewaytest.MemoryScale(), 3); grown > most { // each is looked up, of which the race detector keeps notes
		t.Errorf("the gateway has grown by %d MiB", grown>>20)
	}
	if cached := f.gateways[0].Metrics().Sum("snowgate_token_cache_entries"); cached > 3 {
		t.Errorf("%v tokens are cached, want the good ones only", cached)
	}
}
