package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/config"
	"snowgate/gateway"
	"snowgate/idgen"
	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// With SNOWGATE_TEST_LONG=1, as by make scale, the tests of this file have their full size, and write
// rows of a table to the file that SNOWGATE_SCALE_REPORT names.
func scaleSize(usual, full int) int {
	if os.Getenv("SNOWGATE_TEST_LONG") == "1" {
		return full
	}
	return usual
}

// notUnderRace skips a test whose gateways are measured and not searched for races: that would only be
// slow. The tests without the race detector run it.
func notUnderRace(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("it runs without the race detector")
	}
}

// scaleRow notes one measurement.
func scaleRow(t *testing.T, what, format string, args ...any) {
	t.Helper()
	result := fmt.Sprintf(format, args...)
	t.Logf("%s: %s", what, result)
	path := os.Getenv("SNOWGATE_SCALE_REPORT")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fmt.Fprintf(file, "| %s | %s |\n", what, result)
}

// swarm is many gateways in this process, on one Redis.
type swarm struct {
	t       *testing.T
	admins  []string // base URLs
	stop    context.CancelFunc
	running sync.WaitGroup
}

// newSwarm starts size gateways, which reach Redis at url, and waits until all are ready.
func newSwarm(t *testing.T, size int, url string) *swarm {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &swarm{t: t, stop: stop}
	cfg, err := config.Load([]string{
		"SNOWGATE_REDIS_URL=" + url, "SNOWGATE_WORKER_ID=lease", "SNOWGATE_DRAIN=0s", "SNOWGATE_LOG_LEVEL=error",
		"SNOWGATE_STORE_TIMEOUT=2s", // a thousand gateways share two processors with their Redis
	})
	if err != nil {
		t.Fatal(err)
	}
	logs := gateway.OpenLogs(io.Discard, cfg)
	t.Cleanup(logs.Close)
	var ready sync.WaitGroup
	ready.Add(size)
	gateways := make([]*gateway.Gateway, size) // all of them before the first one runs: they set the logger of go-redis
	for i := range gateways {
		if gateways[i], err = gateway.New(cfg, gateway.Options{Logs: logs, WhenReady: ready.Done}); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range gateways {
		public, admin := listenLoopback(t), listenLoopback(t)
		s.admins = append(s.admins, "http://"+admin.Addr().String())
		s.running.Go(func() {
			if err := g.Serve(ctx, public, admin); err != nil {
				t.Errorf("a gateway of the swarm: %v", err)
			}
		})
	}
	t.Cleanup(s.end)
	all := make(chan struct{})
	go func() { ready.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(3 * time.Minute):
		t.Fatalf("not all of %d gateways are ready after three minutes", size)
	}
	return s
}

func listenLoopback(t *testing.T) *net.TCPListener {
	t.Helper()
	listener, err := gateway.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func (s *swarm) end() {
	s.stop()
	s.running.Wait()
}

// lagBelow returns how many messages of a kind all gateways received, and how many of them within a
// bound, which is one of the histogram.
func (s *swarm) lagBelow(kind, bound string) (all, within float64) {
	s.t.Helper()
	for _, admin := range s.admins {
		response, err := http.Get(admin + "/metrics")
		if err != nil {
			s.t.Fatal(err)
		}
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), "} ")
			n, _ := strconv.ParseFloat(value, 64)
			switch name {
			case `snowgate_push_lag_seconds_count{kind="` + kind + `"`:
				all += n
			case `snowgate_push_lag_seconds_bucket{kind="` + kind + `",le="` + bound + `"`:
				within += n
			}
		}
		_ = response.Body.Close()
	}
	return all, within
}

// redisLoad is what Redis has done so far.
type redisLoad struct {
	cpu      float64 // seconds
	commands float64
	at       time.Time
}

func loadOf(server *redistest.Server) redisLoad {
	return redisLoad{
		server.Info("cpu", "used_cpu_user") + server.Info("cpu", "used_cpu_sys"), server.Info("stats", "total_commands_processed"), time.Now(),
	}
}

// TestScaleOfGateways: many idle gateways cost one Redis little, and a revocation reaches all of them
// at once.
func TestScaleOfGateways(t *testing.T) {
	notUnderRace(t)
	cuttest.SkipUnlessWhole(t, "the gateways are in this process")
	size := scaleSize(20, 1000)
	server := redistest.Start(t, "--maxclients", "20000")
	begun := time.Now()
	s := newSwarm(t, size, server.URL())
	scaleRow(t, fmt.Sprintf("%d gateways are ready", size), "after %.1f s, started together in one process", time.Since(begun).Seconds())

	before := loadOf(server)
	<-time.After(time.Duration(scaleSize(1, 20)) * time.Second)
	after := loadOf(server)
	seconds := after.at.Sub(before.at).Seconds()
	commands, cpu := (after.commands-before.commands)/seconds/float64(size), 100*(after.cpu-before.cpu)/seconds
	scaleRow(t, fmt.Sprintf("%d idle gateways", size), "%.1f commands a second each, those within scripts included; Redis uses %.1f %% of a processor", commands, cpu)
	if commands > 30 { // those that scripts run are counted
		t.Errorf("an idle gateway sends %.1f commands a second, want at most 30", commands)
	}

	store, err := redisstore.Open(redisstore.Options{URL: server.URL(), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const rules = 10
	for range rules {
		if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("a")); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(scaleSize(20, 100)) * time.Millisecond)
	}
	var all, within float64
	gatewaytest.Eventually(t, time.Minute, "all messages have arrived", func() bool {
		all, within = s.lagBelow("rules", "1")
		return all >= float64(rules*size)
	})
	_, fast := s.lagBelow("rules", "0.05")
	scaleRow(t, fmt.Sprintf("a revocation reaches %d gateways", size), "%.1f %% of %.0f messages within 50 ms, %.1f %% within 1 s", 100*fast/all, all, 100*within/all)
	if within < all {
		t.Errorf("%.0f of %.0f messages took more than a second", all-within, all)
	}
}

// TestScaleOfAnOutage: gateways whose Redis is away do not storm it.
func TestScaleOfAnOutage(t *testing.T) {
	notUnderRace(t)
	cuttest.SkipUnlessWhole(t, "the gateways are in this process")
	size := scaleSize(20, 300) // each of its connections takes three descriptors here
	server := redistest.Start(t)
	cable := gatewaytest.NewCable(t, server.Addr())
	newSwarm(t, size, strings.Replace(server.URL(), server.Addr(), cable.Addr(), 1))
	cable.Cut()
	<-time.After(time.Duration(scaleSize(1, 10)) * time.Second) // every breaker is open, and its pause has grown
	dials, seconds := cable.Dials(), scaleSize(2, 5)
	<-time.After(time.Duration(seconds) * time.Second)
	rate := float64(cable.Dials()-dials) / float64(seconds*size)
	scaleRow(t, fmt.Sprintf("%d gateways dial a Redis that is away", size), "%.1f times a second each", rate)
	if rate > 12 {
		t.Errorf("a gateway dials a Redis that is away %.1f times a second, want at most 12", rate)
	}
}

// fillTokens stores count tokens with ids as a gateway makes them, spread over a cluster if rdb is one.
func fillTokens(t *testing.T, store *redisstore.Store, count int) {
	t.Helper()
	r := tokenstest.SampleRecord(1)
	if err := store.Save(t.Context(), r, time.Hour); err != nil {
		t.Fatal(err)
	}
	value := store.Client().Get(t.Context(), "sg:t:"+r.Token.ID.String()).Val()
	const atOnce = 10_000
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for first := next.Add(atOnce) - atOnce; first < int64(count); first = next.Add(atOnce) - atOnce {
				_, err := store.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
					for i := first; i < min(first+atOnce, int64(count)); i++ {
						p.Set(t.Context(), "sg:t:"+idgen.ID(1<<50+i<<12+i%7).String(), value, time.Hour)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestScaleOfTokens: what live tokens take of one Redis, and how long it takes to read one of them.
func TestScaleOfTokens(t *testing.T) {
	notUnderRace(t)
	count := scaleSize(50_000, 10_000_000)
	server := redistest.Start(t, "--appendonly", "no")
	store, err := redisstore.Open(redisstore.Options{URL: server.URL() + "?read_timeout=1m&write_timeout=1m", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	empty := server.Info("memory", "used_memory")
	fillTokens(t, store, count)
	each := (server.Info("memory", "used_memory") - empty) / float64(count)
	var took []time.Duration
	for i := range 2000 {
		n := int64(i) * int64(count) / 2000
		begin := time.Now()
		if _, err := store.Load(t.Context(), idgen.ID(1<<50+n<<12+n%7)); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	scaleRow(t, fmt.Sprintf("%d live tokens on one Redis", count), "%.0f bytes each, with two audiences; reading one takes p50 %v, p99 %v", each, percentile(took, 50), percentile(took, 99))
	if each > 400 {
		t.Errorf("a token takes %.0f bytes, want at most 400", each)
	}
}

// TestScaleOfShards: a cluster gets as many tokens on each of its shards.
func TestScaleOfShards(t *testing.T) {
	notUnderRace(t)
	count := scaleSize(30_000, 3_000_000)
	cluster := redistest.StartCluster(t, 3)
	store, err := redisstore.Open(redisstore.Options{URL: cluster.URL() + "&read_timeout=1m&write_timeout=1m", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	fillTokens(t, store, count)
	var sizes []string
	for _, node := range cluster.Nodes {
		n, err := strconv.Atoi(strings.TrimSpace(node.Do("DBSIZE")))
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, strconv.Itoa(n))
		if share := float64(n) / float64(count); share < 0.31 || share > 0.36 {
			t.Errorf("a shard of three has %d of %d tokens", n, count)
		}
	}
	scaleRow(t, fmt.Sprintf("%d live tokens over three shards", count), "%s", strings.Join(sizes, ", "))
}
