package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestUniqueness: no id is on two tokens. Real gateways, one for each source of worker numbers,
// issue over HTTP throughout, while they are killed and started again, Redis is wiped, and a
// replica takes its place. With SNOWGATE_TEST_LONG=1, as by make uniqueness, there are 100 kills
// instead of 8, and a gateway is stopped for longer than its lease.
func TestUniqueness(t *testing.T) {
	long := os.Getenv("SNOWGATE_TEST_LONG") == "1"
	if !long {
		t.Parallel()
	}
	// In each round so many are killed; before those rounds Redis is wiped, or fails over.
	rounds, atOnce, wipes, failover := 2, 4, []int{0}, 1
	if long {
		rounds, atOnce, wipes, failover = 50, 2, []int{10, 20, 30, 40}, 25
	}
	began := time.Now()
	f := startIssuers(t)
	if long {
		f.stop(1)
	}
	for round := range rounds {
		if slices.Contains(wipes, round) {
			f.redis.FlushAll()
			f.await(50)
		}
		if round == failover {
			f.failOver()
			f.await(50)
		}
		for i := range atOnce {
			f.kill((round*atOnce + i) % len(f.issuers))
		}
		f.await(50)
		if f.stopped != nil && time.Since(f.stoppedAt) > pastTheLease {
			f.resume()
		}
	}
	if f.stopped != nil {
		t.Errorf("a gateway was stopped for %v only", time.Since(f.stoppedAt))
	}
	f.end()
	took := time.Since(began)
	ids, duplicates, refusals := f.count()
	t.Logf("%d tokens in %.0f s, %d kills, %d refusals, %d duplicates", ids, took.Seconds(), rounds*atOnce, refusals, duplicates)
	if duplicates != 0 {
		t.Errorf("%d ids are on two tokens", duplicates)
	}
	reportUniqueness(t, fmt.Sprintf("| gateways, ids of tokens got over HTTP; Redis wiped %d times, one failover | %.0f | %d | %d | %d | %d | %d |",
		len(wipes), took.Seconds(), ids, rounds*atOnce, rounds/50, refusals, duplicates))
}

// pastTheLease is longer than a worker number is leased for.
const pastTheLease = 65 * time.Second

// reportUniqueness adds a row to the table that make uniqueness writes.
func reportUniqueness(t *testing.T, row string) {
	t.Helper()
	name := os.Getenv("SNOWGATE_UNIQUENESS_REPORT")
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := fmt.Fprintln(file, row); err != nil {
		t.Error(err)
	}
}

// issuers are gateways on one Redis, from which tokens are got without a break.
type issuers struct {
	t         *testing.T
	cable     *gatewaytest.Cable
	redis     *redistest.Server // the primary
	replica   *redistest.Server
	client    gatewaytest.Credentials
	issuers   []*issuer
	ended     chan struct{}
	asking    sync.WaitGroup
	stopped   *issuer // by SIGSTOP
	stoppedAt time.Time
}

// issuer is one place of a gateway: whoever is killed there has a successor.
type issuer struct {
	source, listen string // listen is empty: another port each time
	gateway        *gatewaytest.Gateway
	all            []*gatewaytest.Gateway
	url            atomic.Pointer[string]
	refused        atomic.Int64
	issued         atomic.Int64
	mu             sync.Mutex
	ids            []idgen.ID
}

func startIssuers(t *testing.T) *issuers {
	t.Helper()
	primary := redistest.Start(t)
	f := &issuers{
		t: t, redis: primary, replica: redistest.StartReplica(t, primary), client: gatewaytest.NewClient("issuing", "a", "token_ttl: 5s"),
		cable: gatewaytest.NewCable(t, primary.Addr()), ended: make(chan struct{}),
	}
	// Those with a port of their own come back at the address of the one that was killed.
	f.issuers = []*issuer{
		{source: "auto", listen: closedAddress(t)},
		{source: "lease"},
		{source: "registry", listen: closedAddress(t)},
		{source: "7", listen: closedAddress(t)},
	}
	for _, p := range f.issuers {
		f.start(p)
	}
	for _, p := range f.issuers {
		for range 2 {
			f.asking.Go(func() { f.ask(p) })
		}
	}
	t.Cleanup(f.end)
	f.await(50)
	return f
}

func (f *issuers) start(p *issuer) {
	f.t.Helper()
	env := []string{
		"SNOWGATE_REDIS_URL=" + strings.Replace(f.redis.URL(), f.redis.Addr(), f.cable.Addr(), 1),
		"SNOWGATE_WORKER_ID=" + p.source, "SNOWGATE_LOG_LEVEL=info", "GORACE=atexit_sleep_ms=0",
	}
	if p.listen != "" {
		env = append(env, "SNOWGATE_LISTEN="+p.listen)
	}
	p.gateway = gatewaytest.Start(f.t, gatewaytest.Options{Config: "clients:\n" + f.client.YAML, Env: env, NotReady: true})
	p.all = append(p.all, p.gateway)
	p.url.Store(&p.gateway.URL)
}

// ask gets tokens from whichever gateway is there, until the end.
func (f *issuers) ask(p *issuer) {
	client := &http.Client{Timeout: 3 * time.Second}
	defer client.CloseIdleConnections()
	for {
		id, status := f.token(client, *p.url.Load())
		pause := 2 * time.Millisecond // the logs of all gateways are kept in memory
		switch {
		case status == http.StatusOK:
			p.mu.Lock()
			p.ids = append(p.ids, id)
			p.mu.Unlock()
			p.issued.Add(1)
		case status != 0:
			p.refused.Add(1)
			pause = 10 * time.Millisecond
		default: // it was killed, or is stopped
			pause = 10 * time.Millisecond
		}
		select {
		case <-f.ended:
			return
		case <-time.After(pause):
		}
	}
}

// token returns the id of a new token and 200, another status, or 0 without a response.
func (f *issuers) token(client *http.Client, url string) (idgen.ID, int) {
	request, err := http.NewRequest(http.MethodPost, url+"/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		return 0, 0
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(f.client.ID, f.client.Secret)
	response, err := client.Do(request)
	if err != nil {
		return 0, 0
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err != nil || response.StatusCode != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		return 0, response.StatusCode
	}
	id, err := idgen.Parse(strings.Split(answer.AccessToken, "_")[1])
	if err != nil {
		f.t.Errorf("a token with the id %.11q", answer.AccessToken)
	}
	return id, response.StatusCode
}

// await waits for n more tokens of every gateway that is not stopped.
func (f *issuers) await(n int64) {
	f.t.Helper()
	for _, p := range f.issuers {
		if p == f.stopped {
			continue
		}
		target := p.issued.Load() + n
		gatewaytest.Eventually(f.t, 60*time.Second, fmt.Sprintf("%d more tokens by the gateway with WORKER_ID=%s", n, p.source), func() bool { return p.issued.Load() >= target })
	}
}

// kill ends the gateway of a place and starts its successor there.
func (f *issuers) kill(i int) {
	f.t.Helper()
	p := f.issuers[i]
	if p == f.stopped {
		p = f.issuers[(i+2)%len(f.issuers)]
	}
	p.gateway.Signal(syscall.SIGKILL)
	p.gateway.Wait()
	f.start(p)
}

func (f *issuers) stop(i int) {
	f.t.Helper()
	f.issuers[i].gateway.Signal(syscall.SIGSTOP)
	f.stopped, f.stoppedAt = f.issuers[i], time.Now()
}

func (f *issuers) resume() {
	f.t.Helper()
	f.stopped.gateway.Signal(syscall.SIGCONT)
	f.stopped = nil
	f.await(50)
}

// failOver kills the primary and makes the replica one, with whatever it has received.
func (f *issuers) failOver() {
	f.t.Helper()
	f.redis.Kill()
	f.replica.Do("REPLICAOF", "NO", "ONE")
	f.redis = f.replica
	f.cable.Retarget(f.replica.Addr())
}

// end stops the asking. Redis is emptied, so that the search for secrets in it, which is one for each
// gateway, is short.
func (f *issuers) end() {
	select {
	case <-f.ended:
		return
	default:
	}
	close(f.ended)
	f.asking.Wait()
	if f.stopped != nil {
		f.stopped.gateway.Signal(syscall.SIGCONT)
	}
	f.redis.FlushAll()
}

// count returns how many ids there are, how often one is there again, and the refusals. Redis
// refuses a record whose id is taken, and the gateway then takes another: that is a duplicate, too.
func (f *issuers) count() (ids, duplicates, refusals int64) {
	var all []idgen.ID
	for _, p := range f.issuers {
		all = append(all, p.ids...)
		refusals += p.refused.Load()
		for _, g := range p.all {
			duplicates += int64(strings.Count(g.Log(), "an id was issued twice"))
		}
	}
	ids = int64(len(all))
	slices.Sort(all)
	return ids, duplicates + ids - int64(len(slices.Compact(all))), refusals
}
