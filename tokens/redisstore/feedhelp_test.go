package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// rule returns what g knows of a rule, the zero Rule if nothing.
func (g *gateway) rule(id string) tokens.Rule {
	rules := g.rules.Set().Rules
	i := slices.IndexFunc(rules, func(r tokens.Rule) bool { return r.ID == id })
	if i < 0 {
		return tokens.Rule{}
	}
	return rules[i]
}

func (g *gateway) knows(id string) bool { return g.rule(id).ID == id }

// counter is a follower that counts, and fails or waits on request.
type counter struct {
	changes, full atomic.Int64
	fail          atomic.Bool
	block         chan struct{} // if not nil, waited for
}

var errTold = errors.New("told to fail")

func (c *counter) Refresh(ctx context.Context) error {
	c.full.Add(1)
	return c.read(ctx)
}

func (c *counter) Poll(ctx context.Context) error {
	c.changes.Add(1)
	return c.read(ctx)
}

func (c *counter) read(ctx context.Context) error {
	if c.block != nil {
		select {
		case <-c.block:
		case <-ctx.Done():
		}
	}
	if c.fail.Load() {
		return errTold
	}
	return nil
}

func (c *counter) all() int64 { return c.changes.Load() + c.full.Load() }

// refresh is a follower made of a function.
type refresh func(ctx context.Context) error

func (f refresh) Refresh(ctx context.Context) error { return f(ctx) }

// gateway is one store with a running feed, and all reports of the feed.
type gateway struct {
	t     *testing.T
	store *redisstore.Store
	feed  *redisstore.Feed
	rules *tokens.Rules

	rulesRead atomic.Int64

	client, keys  counter
	gaps, garbled atomic.Int64

	mu     sync.Mutex
	tokens map[idgen.ID]int
	kinds  map[string]int
	lags   []time.Duration
	live   error // of the last OnSubscription
	lives  int   // calls of it
	report error
}

var errNotYet = errors.New("not yet")

// startGateway runs a feed until the test ends.
func startGateway(t *testing.T, opts redisstore.Options, change ...func(*gateway)) *gateway {
	t.Helper()
	store := open(t, opts)
	g := &gateway{
		t: t, store: store, rules: tokens.NewRules(tokens.RulesConfig{Store: store, Longest: time.Hour}), tokens: make(map[idgen.ID]int), kinds: make(map[string]int),
		live: errNotYet, report: errNotYet,
	}
	for _, f := range change {
		f(g)
	}
	g.feed = store.Feed(redisstore.FeedConfig{
		Followers: map[string]redisstore.Follower{
			redisstore.PushRules:  refresh(func(ctx context.Context) error { g.rulesRead.Add(1); return g.rules.Refresh(ctx) }),
			redisstore.PushClient: &g.client, redisstore.PushKeys: &g.keys,
		},
		OnToken: func(id idgen.ID) { g.locked(func() { g.tokens[id]++ }) },
		OnGap:   func() { g.gaps.Add(1) },
		OnPush: func(kind string, lag time.Duration) {
			g.locked(func() { g.kinds[kind]++; g.lags = append(g.lags, lag) })
		},
		OnGarbled:      func() { g.garbled.Add(1) },
		OnSubscription: func(err error) { g.locked(func() { g.live = err; g.lives++ }) },
		Report:         func(err error) { g.locked(func() { g.report = err }) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { g.feed.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return g
}

func (g *gateway) locked(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// subscribed returns the error of the last OnSubscription.
func (g *gateway) subscribed() (err error) {
	g.locked(func() { err = g.live })
	return err
}

func (g *gateway) reported() (err error) {
	g.locked(func() { err = g.report })
	return err
}

func (g *gateway) heard(id idgen.ID) (n int) {
	g.locked(func() { n = g.tokens[id] })
	return n
}

func (g *gateway) pushes(kind string) (n int) {
	g.locked(func() { n = g.kinds[kind] })
	return n
}

// settled waits until the feed is subscribed and has confirmed the followers since.
func (g *gateway) settled() {
	g.t.Helper()
	g.eventually("subscribe", func() bool { return g.subscribed() == nil })
	g.confirmedAnew()
}

// confirmedAnew waits for a confirmation that began after the call.
func (g *gateway) confirmedAnew() {
	g.t.Helper()
	begin := time.Now()
	g.eventually("confirm its followers", func() bool {
		at, ok := g.feed.Confirmed()
		return ok && at.After(begin)
	})
}

func (g *gateway) eventually(what string, done func() bool) {
	g.t.Helper()
	eventually(g.t, "the gateway did not "+what, done)
}

// addRule writes a rule and returns it.
func (g *gateway) addRule(r tokens.Rule) tokens.Rule {
	g.t.Helper()
	stored, _, err := g.store.AddRule(g.t.Context(), r)
	if err != nil {
		g.t.Fatalf("AddRule = %v", err)
	}
	return stored
}

// eventually polls until a state of another process is reached.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("timed out: %s", what)
		case <-ticker.C:
		}
	}
}

// wire is a TCP proxy in front of a server. It can fall silent, for all
// connections or for those with a subscription, while they stay open.
type wire struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu           sync.Mutex
	open         map[net.Conn]bool
	flowing      *sync.Cond // on mu: silence or closed changed
	silent       bool
	silentPushes bool
	refuse       bool
	closed       bool
}

func startWire(t *testing.T, target string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, target: target, open: make(map[net.Conn]bool)}
	w.flowing = sync.NewCond(&w.mu)
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.set(func() { w.closed = true })
		w.Cut()
		w.wg.Wait()
	})
	return w
}

// through returns address with the proxy in place of the server.
func (w *wire) through(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = w.listener.Addr().String()
	return u.String()
}

func (w *wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.flowing.Broadcast()
}

// Silence stops all bytes on subscriptions or on every connection, new connections included; it
// closes none.
func (w *wire) Silence(all bool) { w.set(func() { w.silent, w.silentPushes = all, true }) }

// Flow ends the silence and forwards the bytes that were held back.
func (w *wire) Flow() { w.set(func() { w.silent, w.silentPushes, w.refuse = false, false, false }) }

// Cut closes all connections. Refuse does so too, and also closes new ones.
func (w *wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.open {
		_ = conn.Close()
	}
}

func (w *wire) Refuse() { w.set(func() { w.refuse = true }); w.Cut() }

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil || !w.keep(client, server) {
			_ = client.Close()
			continue
		}
		var subscribes atomic.Bool
		w.wg.Go(func() { w.pipe(server, client, &subscribes) })
		w.wg.Go(func() { w.pipe(client, server, &subscribes) })
	}
}

func (w *wire) keep(client, server net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse || w.closed {
		_ = server.Close()
		return false
	}
	w.open[client], w.open[server] = true, true
	return true
}

func (w *wire) pipe(to, from net.Conn, subscribes *atomic.Bool) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if bytes.Contains(buffer[:n], []byte("subscribe")) {
			subscribes.Store(true)
		}
		w.hold(subscribes)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, to)
	delete(w.open, from)
}

// hold waits while the connection is to be silent.
func (w *wire) hold(subscribes *atomic.Bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed && (w.silent || w.silentPushes && subscribes.Load()) {
		w.flowing.Wait()
	}
}
