package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

// The model-based test: several gateways on one store and one bus, in virtual
// time. At random they issue, validate, revoke and write rules, while pushes are
// dropped, gateways are cut off from the bus or from the store, and the store
// falls back to an older state. It checks two things and nothing else:
//
//   - no token is found good when the bound has passed since its revocation was
//     answered, on the answering gateway not even at once;
//   - no token is refused, and no stream cut, that nothing revoked;
//   - streams are cut before a revocation is answered by their own gateway, and
//     within the bound after a rule is answered by another one.
const (
	modelPoll   = 300 * time.Millisecond
	modelSettle = 4 * time.Second // after a fallback, until rules have been written back everywhere
)

// modelTime is how long one run is, in virtual time: longer than a rule is kept,
// unless every step costs a multiple.
func modelTime() time.Duration {
	if raceEnabled {
		return 45 * time.Second
	}
	return 170 * time.Second
}

// modelCase is one configuration of the gateways.
type modelCase struct {
	name       string
	cacheTTL   time.Duration
	failStatic time.Duration
	rollbacks  bool
}

func TestModel(t *testing.T) {
	for _, c := range []modelCase{
		{"cached", 2 * time.Second, 0, false},
		{"not cached", 0, 0, false},
		{"fail-static", 2 * time.Second, 3 * time.Second, false},
		{"the store falls back", 2 * time.Second, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runModel(t, c, rand.Uint64()) })
		})
	}
}

// modelToken is what is known of one token. Times are of the store's clock, which
// is the bubble's; sequence numbers order what happens at one instant.
type modelToken struct {
	text    string
	token   tokens.Token
	worker  int64
	begun   time.Time // Issue was called
	saved   time.Time // it returned
	revoked revocation
	lost    bool // its record may have gone with a fallback
}

// revocation is one revocation that was asked for; the zero value is none.
type revocation struct {
	begun    bool
	answered time.Time // zero: not, or it is forgiven because the store forgot it
	sequence int
	node     *node
}

// modelRule is a rule that was asked for.
type modelRule struct {
	rule  tokens.Rule
	asked time.Time
	revocation
	forgiven time.Time // until then it may be unknown to others, after a fallback
}

// matches tells whether the rule may revoke the token.
func (r *modelRule) matches(m *modelToken) bool {
	if r.rule.Kind != tokens.RuleClient {
		minted := mintTime(m.token.ID)
		return minted.Before(r.rule.Until) && !minted.Before(r.rule.From) && (r.rule.Kind == tokens.RuleBefore || m.worker == r.rule.Worker)
	}
	return m.token.Client == r.rule.Client
}

// modelStream is one stream that was opened.
type modelStream struct {
	tok      *modelToken
	node     *node
	opened   time.Time
	sequence int // when it was registered
	cut      bool
}

type model struct {
	t     *testing.T
	c     modelCase
	store *tokenstest.Store
	nodes []*node

	mu       sync.Mutex
	rand     *rand.Rand
	sequence int
	tokens   []*modelToken
	rules    []*modelRule
	streams  []*modelStream
	calm     time.Time // nothing goes wrong before that, once the store has fallen back
	fell     time.Time // when the store has fallen back last
	counts   map[string]int
}

// node is one gateway.
type node struct {
	m     *model
	index int
	skew  time.Duration
	rules *tokens.Rules
	*tokens.Service

	confirmed atomic.Pointer[time.Time]
	deaf      atomic.Bool // cut off from the bus
	cut       atomic.Bool // cut off from the store, and from the bus with it
	troubled  atomic.Pointer[time.Time]
	wake      chan bool // true: subscribed again
}

func (n *node) now() time.Time { return time.Now().Add(n.skew) }

// trouble records that n is affected by a fault at this instant.
func (n *node) trouble() {
	now := time.Now()
	n.troubled.Store(&now)
}

func (m *model) intn(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

func (m *model) pause(most time.Duration) { time.Sleep(time.Duration(1 + m.intn(int(most)))) }

// nodeStore is the store as one gateway reaches it: with delays before and
// after, or not at all. Writes are pushed to the others.
type nodeStore struct{ n *node }

func (s nodeStore) reach(ctx context.Context) error {
	s.n.m.pause(4 * time.Millisecond)
	if err := ctx.Err(); err != nil || s.n.cut.Load() {
		return errors.Join(tokens.ErrUnavailable, err)
	}
	return nil
}

// through runs an operation; a response that is lost is an error after the fact.
func through[T any](ctx context.Context, s nodeStore, op func() (T, error)) (T, error) {
	var none T
	if err := s.reach(ctx); err != nil {
		return none, err
	}
	v, err := op()
	if lost := s.reach(ctx); lost != nil {
		return none, lost
	}
	return v, err
}

func (s nodeStore) Save(ctx context.Context, r tokens.Record, ttl time.Duration) error {
	_, err := through(ctx, s, func() (any, error) { return nil, s.n.m.store.Save(ctx, r, ttl) })
	return err
}

func (s nodeStore) Load(ctx context.Context, id idgen.ID) (tokens.Record, error) {
	return through(ctx, s, func() (tokens.Record, error) { return s.n.m.store.Load(ctx, id) })
}

func (s nodeStore) Delete(ctx context.Context, id idgen.ID) error {
	_, err := through(ctx, s, func() (any, error) {
		err := s.n.m.store.Delete(ctx, id)
		s.n.m.push(func(n *node) { n.Dropped(id) })
		return nil, err
	})
	return err
}

func (s nodeStore) LoadRules(ctx context.Context) (tokens.RuleSet, error) {
	return through(ctx, s, func() (tokens.RuleSet, error) { return s.n.m.store.LoadRules(ctx) })
}

func (s nodeStore) RestoreRules(ctx context.Context, set tokens.RuleSet) error {
	_, err := through(ctx, s, func() (any, error) { return nil, s.n.m.store.RestoreRules(ctx, set) })
	s.n.m.pushRules()
	return err
}

func (s nodeStore) AddRule(ctx context.Context, r tokens.Rule) (tokens.Rule, uint64, error) {
	var revision uint64
	stored, err := through(ctx, s, func() (tokens.Rule, error) {
		stored, v, err := s.n.m.store.AddRule(ctx, r)
		revision = v
		s.n.m.pushRules()
		return stored, err
	})
	return stored, revision, err
}

// push informs every gateway that is connected; one in ten misses it.
func (m *model) push(tell func(*node)) {
	for _, n := range m.nodes {
		if n.deaf.Load() || n.cut.Load() || m.intn(10) == 0 {
			continue
		}
		go func() {
			m.pause(20 * time.Millisecond)
			tell(n)
		}()
	}
}

func (m *model) pushRules() {
	m.push(func(n *node) {
		select {
		case n.wake <- false:
		default:
		}
	})
}

// feed keeps the rules of n current, as the real one does.
func (n *node) feed(ctx context.Context) {
	for ctx.Err() == nil {
		subscribed := false
		select {
		case <-ctx.Done():
			return
		case subscribed = <-n.wake:
		case <-time.After(modelPoll):
		}
		if subscribed {
			n.Gap()
		}
		at := time.Now()
		set, err := nodeStore{n}.LoadRules(ctx)
		if err == nil && (subscribed || set.Revision != n.rules.Revision()) {
			err = n.rules.Refresh(ctx)
		}
		if err == nil {
			n.confirmed.Store(&at)
		} else {
			n.trouble()
		}
	}
}

func (n *node) lastConfirmed() (time.Time, bool) {
	if at := n.confirmed.Load(); at != nil {
		return *at, true
	}
	return time.Time{}, false
}

func newModel(t *testing.T, c modelCase, seed uint64) *model {
	m := &model{t: t, c: c, store: tokenstest.NewStore(time.Now), rand: rand.New(rand.NewPCG(seed, 9)), counts: make(map[string]int)}
	for i, skew := range []time.Duration{0, 200 * time.Millisecond, -200 * time.Millisecond} {
		n := &node{m: m, index: i, skew: skew, wake: make(chan bool, 1)}
		n.trouble()
		n.rules = tokens.NewRules(tokens.RulesConfig{Store: nodeStore{n}, Longest: 30 * time.Second, Now: n.now})
		n.Service = tokens.NewService(tokens.Config{
			Store: nodeStore{n}, Keys: tokens.FixedKeyring(gateKey), IDs: &skewedIDs{n: n}, MintTime: mintTime, Worker: workerOf,
			Now: n.now, Rules: n.rules, Confirmed: n.lastConfirmed, Timeout: 250 * time.Millisecond,
			CacheTTL: c.cacheTTL, CacheSize: 100, FailStatic: c.failStatic,
		})
		m.nodes = append(m.nodes, n)
	}
	return m
}

// skewedIDs makes the ids of one gateway by its clock.
type skewedIDs struct {
	n    *node
	next atomic.Int64
}

func (g *skewedIDs) Next(context.Context) (idgen.ID, error) {
	return idgen.ID(g.n.now().UnixMilli()<<sequenceBits | int64(g.n.index)<<12 | g.next.Add(1)&0xfff), nil
}

func runModel(t *testing.T, c modelCase, seed uint64) {
	m := newModel(t, c, seed)
	ctx, cancel := context.WithTimeout(t.Context(), modelTime())
	defer cancel()
	var wg sync.WaitGroup
	for _, n := range m.nodes {
		wg.Go(func() { n.feed(ctx) })
		wg.Go(func() { m.disturb(ctx, n) })
		for range 4 {
			wg.Go(func() { m.act(ctx, n) })
		}
	}
	wg.Go(func() { m.checkStreams(ctx) })
	if c.rollbacks {
		wg.Go(func() { m.fallBack(ctx) })
	}
	wg.Wait()
	for _, n := range m.nodes {
		n.Close()
	}
	synctest.Wait()
	t.Logf("%s, seed %d: %v", c.name, seed, m.counts)
	for _, what := range []string{"ok", "unknown", "revoked", "expired", "unavailable"} {
		if m.counts[what] == 0 {
			t.Errorf("no validation ended as %q: the model does not try what it should", what)
		}
	}
}

// disturb cuts n off from the bus, or from the store, now and then.
func (m *model) disturb(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		m.pause(8 * time.Second)
		m.mu.Lock()
		calm := time.Until(m.calm)
		m.mu.Unlock()
		if calm > 0 {
			time.Sleep(calm)
			continue
		}
		fault := &n.deaf
		if m.intn(3) == 0 {
			fault = &n.cut
		}
		fault.Store(true)
		n.trouble()
		n.PushesLost(true)
		m.pause(7 * time.Second)
		m.heal(n)
	}
}

func (m *model) heal(n *node) {
	if n.deaf.Swap(false) || n.cut.Load() {
		n.trouble()
	}
	n.cut.Store(false)
	n.PushesLost(false)
	select {
	case <-n.wake:
	default:
	}
	select {
	case n.wake <- true:
	default:
	}
}

// fallBack returns the store to an older state.
func (m *model) fallBack(ctx context.Context) {
	for ctx.Err() == nil {
		m.pause(10 * time.Second)
		taken := time.Now()
		rollback := m.store.Snapshot()
		m.pause(5 * time.Second)
		m.mu.Lock()
		now := time.Now()
		m.fell, m.calm = now, now.Add(2*modelSettle)
		for _, tok := range m.tokens {
			tok.lost = tok.lost || !tok.saved.Before(taken)
			if r := &tok.revoked; r.begun && !r.answered.Before(taken) {
				r.answered = time.Time{} // its record is back
			}
		}
		for _, r := range m.rules {
			if !r.answered.Before(taken) {
				r.forgiven = now.Add(modelSettle)
				if now.Sub(r.answered) < time.Second {
					r.answered = time.Time{} // nobody may have noticed that there was more
				}
			}
		}
		rollback()
		m.mu.Unlock()
		for _, n := range m.nodes {
			n.trouble()
			m.heal(n) // a failover breaks all connections
		}
		time.Sleep(2 * modelSettle)
	}
}

// act does random things at one gateway.
func (m *model) act(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		m.pause(60 * time.Millisecond)
		switch p := m.intn(100); {
		case p < 12:
			m.issue(ctx, n)
		case p < 16:
			m.revoke(ctx, n)
		case p < 17 && m.intn(2) == 0:
			m.addRule(ctx, n)
		default:
			m.validate(ctx, n)
		}
	}
}

func (m *model) issue(ctx context.Context, n *node) {
	begun := time.Now()
	bearer, token, err := n.Issue(ctx, tokens.Claims{
		Client: fmt.Sprintf("c%d", m.intn(8)), Scope: scope.Of("a"), TTL: time.Duration(1+m.intn(30)) * time.Second,
	})
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens = append(m.tokens, &modelToken{
		text: bearer.Reveal(), token: token, worker: int64(n.index), begun: begun, saved: time.Now(),
		lost: m.spansFallback(begun),
	})
}

// pick returns one of the latest tokens.
func (m *model) pick() *modelToken {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.tokens) == 0 {
		return nil
	}
	return m.tokens[len(m.tokens)-1-m.rand.IntN(min(len(m.tokens), 60))]
}

func (m *model) revoke(ctx context.Context, n *node) {
	tok := m.pick()
	if tok == nil {
		return
	}
	m.mu.Lock()
	first := !tok.revoked.begun
	tok.revoked.begun = true
	m.mu.Unlock()
	if !first {
		return
	}
	at, begun := time.Now(), m.tick()
	err := n.RevokeID(ctx, tok.token.ID)
	if err == nil {
		m.answer(&tok.revoked, n, at)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.checkOwnStreams(n, begun, func(other *modelToken) bool { return other == tok })
	}
}

// tick returns the next sequence number.
func (m *model) tick() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sequence++
	return m.sequence
}

// answer notes that n has answered r, which it began at an instant. What was written before the
// store fell back, and is answered after that, is lost like what was answered just before.
func (m *model) answer(r *revocation, n *node, begun time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sequence++
	r.sequence, r.node = m.sequence, n
	if !m.spansFallback(begun) {
		r.answered = time.Now()
	}
}

// spansFallback tells whether the store has fallen back since an instant. m.mu is held.
func (m *model) spansFallback(since time.Time) bool { return !m.fell.Before(since) }

func (m *model) addRule(ctx context.Context, n *node) {
	var rule tokens.Rule
	now := time.Now()
	switch m.intn(8) {
	case 0:
		rule = tokens.BeforeRule(now.Add(-time.Duration(5+m.intn(10)) * time.Second))
	case 1, 2:
		from := now.Add(-time.Duration(1+m.intn(3000)) * time.Millisecond)
		rule = tokens.WorkerRule(int64(m.intn(3)), from, from.Add(time.Duration(1+m.intn(500))*time.Millisecond))
		if rule.Until.After(now) {
			return
		}
	default:
		rule = tokens.ClientRule(fmt.Sprintf("c%d", m.intn(8)))
	}
	r := &modelRule{rule: rule, asked: now}
	r.begun = true
	m.mu.Lock()
	m.rules = append(m.rules, r)
	m.mu.Unlock()
	begun := m.tick()
	if _, err := n.AddRule(ctx, rule); err == nil {
		m.answer(&r.revocation, n, now)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.checkOwnStreams(n, begun, func(tok *modelToken) bool { return r.kills(tok) && tok.saved.Before(r.answered.Add(-time.Second)) })
	}
}

func (m *model) validate(ctx context.Context, n *node) {
	tok := m.pick()
	if tok == nil {
		return
	}
	m.mu.Lock()
	m.sequence++
	begun, sequence := time.Now(), m.sequence
	m.mu.Unlock()
	token, err := n.Validate(ctx, tok.text)
	if err == nil && m.intn(4) == 0 {
		m.open(n, tok, &token)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[tokens.Reason(err)]++
	switch {
	case err == nil:
		m.checkSuccess(n, tok, begun, sequence)
	case errors.Is(err, tokens.ErrInvalid):
		m.checkRefusal(n, tok, err)
	case ctx.Err() == nil && time.Since(*n.troubled.Load()) > 2*n.Bound()+2*time.Second:
		m.t.Errorf("gateway %d cannot decide although nothing is wrong: %v", n.index, err)
	}
}

// checkSuccess: m.mu is held.
func (m *model) checkSuccess(n *node, tok *modelToken, begun time.Time, sequence int) {
	bound := n.Bound() + m.c.failStatic
	if !begun.Add(n.skew).Before(tok.token.ExpiresAt) {
		m.t.Errorf("gateway %d: a token is good %s after its expiry", n.index, begun.Add(n.skew).Sub(tok.token.ExpiresAt))
	}
	late := func(r revocation) bool {
		if r.answered.IsZero() {
			return false
		}
		return r.node == n && r.sequence < sequence || r.answered.Add(bound).Before(begun)
	}
	if late(tok.revoked) {
		m.t.Errorf("gateway %d: a token is good %s after gateway %d answered its revocation", n.index, begun.Sub(tok.revoked.answered), tok.revoked.node.index)
	}
	for _, r := range m.rules {
		if !r.matches(tok) || !late(r.revocation) || n != r.node && begun.Before(r.forgiven.Add(bound)) {
			continue
		}
		if r.rule.Kind == tokens.RuleClient && tok.saved.After(r.answered) {
			continue // issued after, and so perhaps under the new generation
		}
		m.t.Errorf("gateway %d: a token is good %s after gateway %d answered the rule %s", n.index, begun.Sub(r.answered), r.node.index, r.rule.ID)
	}
}

// checkRefusal: m.mu is held.
func (m *model) checkRefusal(n *node, tok *modelToken, err error) {
	if tok.lost || tok.revoked.begun || !n.now().Before(tok.token.ExpiresAt) {
		return
	}
	for _, r := range m.rules {
		// A gateway that has not learned of a rule for a client issues tokens that
		// are born revoked, but no longer than for the bound.
		if r.matches(tok) && (r.rule.Kind != tokens.RuleClient || r.answered.IsZero() || !tok.begun.After(r.answered.Add(n.Bound())) || tok.begun.Before(r.forgiven.Add(n.Bound()))) {
			return
		}
	}
	m.t.Errorf("gateway %d refuses a token that nothing revoked: %v", n.index, err)
}

// open opens a stream.
func (m *model) open(n *node, tok *modelToken, token *tokens.Token) {
	st := &modelStream{tok: tok, node: n, opened: time.Now()}
	n.Watch(token, tokens.Requirement{}, func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if st.cut {
			m.t.Errorf("gateway %d cuts a stream twice", n.index)
		}
		st.cut = true
		m.counts["cut "+tokens.Reason(err)]++
		m.checkRefusal(n, tok, err)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sequence++
	st.sequence = m.sequence
	m.streams = append(m.streams, st)
}

// checkOwnStreams is called when n has answered a revocation of whatever matches.
// m.mu is held.
func (m *model) checkOwnStreams(n *node, begun int, matches func(*modelToken) bool) {
	for _, st := range m.streams {
		if !st.cut && st.node == n && st.sequence < begun && matches(st.tok) {
			m.t.Errorf("gateway %d answers a revocation, and a stream of the token is still open", n.index)
		}
	}
}

// checkStreams is called at intervals: the streams of gateways that nothing is
// wrong with must know the rules.
func (m *model) checkStreams(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Second)
		m.mu.Lock()
		m.streams = slices.DeleteFunc(m.streams, func(st *modelStream) bool { return st.cut })
		// Whatever a rule matches has died since; a token that is refused because of
		// an older one is refused wrongly.
		m.rules = slices.DeleteFunc(m.rules, func(r *modelRule) bool {
			return time.Since(r.asked) > 40*time.Second && time.Since(r.forgiven) > 40*time.Second
		})
		for _, st := range m.streams {
			n := st.node
			if st.cut || time.Since(*n.troubled.Load()) < 2*n.Bound()+2*time.Second || !st.opened.Before(time.Now().Add(-n.Bound()-time.Second)) {
				continue
			}
			for _, r := range m.rules {
				if r.kills(st.tok) && time.Since(r.answered) > n.Bound()+time.Second && time.Now().After(r.forgiven.Add(n.Bound())) {
					m.t.Errorf("gateway %d: a stream is open %s after the rule %s was answered", n.index, time.Since(r.answered), r.rule.ID)
				}
			}
		}
		m.mu.Unlock()
	}
}

// kills reports whether the rule was confirmed to its caller and certainly revokes the token.
func (r *modelRule) kills(m *modelToken) bool {
	return !r.answered.IsZero() && r.matches(m) && (r.rule.Kind != tokens.RuleClient || !m.saved.After(r.answered))
}
