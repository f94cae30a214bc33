// Package torture_test puts the gateway and [httputil.ReverseProxy] before the same service, holds
// the same conversations through both, and compares what the client and the service get.
package torture_test

import (
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"crypto/tls"
	"crypto/x509"

	"snowgate/integration/gatewaytest"
)

var (
	seedFlag  = flag.Uint64("torture.seed", 0, "seed of the conversations; 0: one of its own for every run")
	forFlag   = flag.Duration("torture.for", 0, "how long conversations are held; 0: not at all")
	onlyFlag  = flag.Uint64("torture.only", 0, "number of the only conversation that is held, again and again; 0: all")
	mostFlag  = flag.Int("torture.faults", 8, "after how many faults a run ends")
	againFlag = flag.Int("torture.again", 0, "how often a conversation is repeated in which the proxies differ; a difference that never comes again is a fault only if there are several")
	laneFlag  = flag.String("torture.lane", "", "the only service, by the name of its lane, whose conversations are held; empty: all")
	listFlag  = flag.Bool("torture.show", false, "list the plan of torture.only")
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Run(m)) }

// workers is how many conversations go on at a time.
const workers = 12

// A run is one run of the torture.
type run struct {
	t     *testing.T
	seed  uint64
	site  *site
	sides map[string]string // addresses of the proxies
	logs  map[string]func() string
	table []*row

	next, stop, slow atomic.Uint64
	mu               sync.Mutex
	faults, once     int
	kinds, counts    map[string]int
}

// TestTorture holds conversations made of a seed through both proxies. A failure names the seed
// and the conversation:
//
//	go test ./integration/torture -run TestTorture -torture.seed=1 -torture.only=2
func TestTorture(t *testing.T) {
	if *forFlag == 0 {
		t.Skip("set -torture.for")
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	x := &run{t: t, seed: seed, table: newTable(), kinds: map[string]int{}, counts: map[string]int{}}
	x.site = &site{t: t, fault: x.fault}
	x.start()
	begun := time.Now()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for time.Since(begun) < *forFlag && x.stop.Load() == 0 {
				x.converse()
			}
		})
	}
	working.Wait()
	x.report(time.Since(begun))
}

// converse holds the next conversation through both proxies.
func (x *run) converse() {
	number, round := x.next.Add(1), uint64(0)
	if *onlyFlag != 0 {
		number, round = *onlyFlag, number
	}
	plan := newConversation(x.seed, number, round)
	if *laneFlag != "" && !slices.ContainsFunc(plan, func(e *exchange) bool { return e.lane == *laneFlag }) {
		return
	}
	side, gateway := "a", "the gateway"
	if number%3 == 0 {
		side, gateway = "c", "the gateway with transport: standard"
	}
	for _, e := range plan {
		e.standard = side == "c"
	}
	ours, theirs := x.through(side, plan), x.through("b", plan)
	for i, e := range plan {
		x.count(e, ours[i], gateway)
		if *listFlag && *onlyFlag != 0 {
			x.t.Log(e)
		}
		for _, fault := range absolute(e, ours[i]) {
			x.fault("conversation %d, %s: %s; %s", number, gateway, fault, e)
		}
		for _, d := range compare(e, ours[i], theirs[i]) {
			if x.meant(e, d) {
				continue
			}
			d.cause = x.cause(side, ours[i])
			if !x.meant(e, d) && !x.onlyOnce(number, side, i, d) {
				x.fault("conversation %d, %s, %s; %s", number, gateway, d, e)
			}
		}
	}
}

// mostOnce is how many differences of one run may be such that they do not come again.
const mostOnce = 2

// onlyOnce repeats a conversation in which exchange i differs. It reports whether that exchange
// differs in no repetition, as when a machine was stopped for a second, and notes it. A response of
// another exchange is no difference, and is always a fault: see absolute.
func (x *run) onlyOnce(number uint64, side string, i int, d difference) bool {
	if *againFlag == 0 {
		return false
	}
	for range *againFlag {
		plan := newConversation(x.seed, number, x.next.Add(1))
		for _, e := range plan {
			e.standard = side == "c"
		}
		ours, theirs := x.through(side, plan), x.through("b", plan)
		for _, again := range compare(plan[i], ours[i], theirs[i]) {
			if again.what == d.what && !x.meant(plan[i], again) {
				return false
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.once++
	x.t.Logf("seed %d: conversation %d, not again in %d repetitions: %s", x.seed, number, *againFlag, d)
	return x.once <= mostOnce
}

// count counts an exchange for the report.
func (x *run) count(e *exchange, r *record, gateway string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.kinds[e.kind]++
	for _, feature := range e.features() {
		x.counts[feature]++
	}
	x.counts["through "+gateway]++
	if r.again {
		x.counts["on a connection that the client had used before"]++
	}
}

// through holds a conversation through one proxy.
func (x *run) through(side string, plan []*exchange) (records []*record) {
	var plays []*play
	for _, e := range plan {
		p := &play{e, new(record), side}
		plays, records = append(plays, p), append(records, p.record)
		x.site.under.Store(e.mark(side), p)
	}
	c := &client{side: side, address: x.sides[side]}
	begun := time.Now()
	c.hold(plays)
	if took := time.Since(begun); took > patience/4 {
		var ends []string
		for _, p := range plays {
			ends = append(ends, fmt.Sprint(p.outcome.end, p.outcome.status, " ", p.features()))
		}
		x.t.Logf("side %s took %v: %q", side, took, ends)
		x.slow.Add(1)
	}
	for _, p := range plays {
		if p.clientAborts() || p.wrongRequest != nil {
			x.site.aborted.Store(p.mark(side), true)
		}
		x.site.under.Delete(p.mark(side))
	}
	return records
}

// cause returns the access line of an exchange that the gateway answered with an error of its own.
func (x *run) cause(side string, r *record) string {
	id := r.outcome.header.Get("X-Request-Id")
	if id == "" {
		return ""
	}
	for line := range strings.Lines(x.logs[side]()) {
		if strings.Contains(line, id) {
			return "\n\t" + line
		}
	}
	return ""
}

// meant finds the row for a difference.
func (x *run) meant(e *exchange, d difference) bool {
	for _, r := range x.table {
		if r.is(e, d) {
			r.count.Add(1)
			return true
		}
	}
	return false
}

func (x *run) fault(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.faults++; x.faults <= *mostFlag {
		x.t.Errorf("seed %d: %s", x.seed, fmt.Sprintf(format, args...))
	} else {
		x.stop.Store(1)
	}
}

// report tells what was seen.
func (x *run) report(took time.Duration) {
	var text strings.Builder
	total := 0
	for _, n := range x.kinds {
		total += n
	}
	fmt.Fprintf(&text, "# Torture\n\nWritten by `make torture`, %s, after %v: seed %d, %d conversations, %d exchanges, %d faults, %d differences that came once.\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), took.Round(time.Second), x.seed, x.next.Load(), total, x.faults, x.once)
	fmt.Fprintf(&text, "\n| Kind of exchange | Count |\n|---|---:|\n%s\n", rows(x.kinds))
	fmt.Fprintf(&text, "\n| Part of an exchange | Count |\n|---|---:|\n%s\n", rows(x.counts))
	fmt.Fprintf(&text, "\n| Difference on purpose | Count | Reason |\n|---|---:|---|\n")
	for _, r := range x.table {
		fmt.Fprintf(&text, "| %s | %d | %s |\n", r.name, r.count.Load(), r.reason)
		if r.count.Load() == 0 && !r.rare && *onlyFlag == 0 && total > 20_000 {
			x.t.Errorf("the row %q was never needed", r.name)
		}
	}
	x.t.Log(text.String())
	if path := os.Getenv("TORTURE_REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			x.t.Error(err)
		}
	}
}

// start starts the services and both proxies.
func (x *run) start() {
	plain := httptest.NewUnstartedServer(x.site)
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Config.ErrorLog = log.New(io.Discard, "", 0)
	plain.Start()
	secure := httptest.NewUnstartedServer(x.site)
	secure.EnableHTTP2 = true
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	x.t.Cleanup(func() { plain.Close(); secure.Close() })
	address := x.site.listen()
	upstreams := map[string]string{
		calm: "http://" + address, restless: "http://" + x.site.listen(), crooked: "http://" + x.site.listen(), tunnels: "http://" + x.site.listen(),
		h2c: "h2c://" + plain.Listener.Addr().String(), h2: "https://" + secure.Listener.Addr().String(),
	}
	trust := filepath.Join(x.t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(trust, block, 0o600); err != nil {
		x.t.Fatal(err)
	}
	direct, standard := x.startGateway(upstreams, trust, "direct"), x.startGateway(upstreams, trust, "standard")
	x.sides = map[string]string{"a": direct.Addr, "c": standard.Addr, "b": x.startOracle(upstreams, secure.Certificate())}
	x.logs = map[string]func() string{"a": direct.Log, "c": standard.Log}
}

func (x *run) startGateway(upstreams map[string]string, trust, transport string) *gatewaytest.Gateway {
	config := "routes:\n"
	for lane, upstream := range upstreams {
		config += fmt.Sprintf("  - {name: %s, path: /%s, upstreams: [\"%s\"], public: true, websocket: %v}\n", lane, lane, upstream, lane == tunnels)
	}
	return gatewaytest.Start(x.t, gatewaytest.Options{Config: config, Env: []string{
		"SSL_CERT_FILE=" + trust, "SNOWGATE_LOG_LEVEL=info", "SNOWGATE_TRANSPORT=" + transport,
	}})
}

// startOracle starts the proxy of the standard library.
func (x *run) startOracle(upstreams map[string]string, certificate *x509.Certificate) string {
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	proxies := map[string]*httputil.ReverseProxy{}
	for lane, upstream := range upstreams {
		target, _ := url.Parse(upstream)
		transport := &http.Transport{
			DisableCompression: true, MaxIdleConnsPerHost: 512, ExpectContinueTimeout: patience, Protocols: new(http.Protocols),
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}
		transport.Protocols.SetHTTP1(lane != h2c)
		transport.Protocols.SetHTTP2(lane == h2)
		transport.Protocols.SetUnencryptedHTTP2(lane == h2c)
		x.t.Cleanup(transport.CloseIdleConnections)
		host, scheme := target.Host, strings.ReplaceAll(target.Scheme, "h2c", "http")
		proxies[lane] = &httputil.ReverseProxy{
			Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = scheme, host, p.In.Host
				p.Out.URL.RawQuery = p.In.URL.RawQuery
				p.SetXForwarded()
			},
		}
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // else it reads all of the body before it answers
		body := &guardedBody{ReadCloser: r.Body}
		if r.Body != http.NoBody {
			r.Body = body
			defer body.end(w, r.Header.Get("Expect") != "")
		}
		lane, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		lane, _, _ = strings.Cut(lane, ";")
		if p := proxies[lane]; p != nil {
			p.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	x.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// A guardedBody is read no more when the handler has returned. A transport may go on to read, and
// with full duplex net/http then panics for two that read at a time.
type guardedBody struct {
	io.ReadCloser
	mu    sync.Mutex
	ended atomic.Bool
}

func (b *guardedBody) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() {
		if fault := recover(); fault != nil { // net/http's own, against its look for the client
			err = fmt.Errorf("net/http: %v", fault)
		}
	}()
	if b.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

// Close does not close the body, which the server does: to close it is to read what is left of it.
func (b *guardedBody) Close() error { return nil }

// end waits for a Read under way. The client of these tests always sends what is left.
//
// A transport that means to keep its connection wants the body even where the service has refused
// it without 100 Continue. The client can only send it when it has seen the refusal.
func (b *guardedBody) end(w http.ResponseWriter, expected bool) {
	if expected {
		_ = http.NewResponseController(w).Flush()
	}
	b.ended.Store(true)
	b.mu.Lock()
	defer b.mu.Unlock()
}
