package tokens

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"snowgate/idgen"
	"snowgate/internal/panics"
)

const (
	// watchReaders is how many watched tokens are read from the store at once.
	watchReaders = 16
	// watchPatience is how many reads in a row must fail before a reader takes the whole store for
	// unavailable, and not one shard of it.
	watchPatience = 16
	// watchRetry is the time from a failed read to the next one.
	watchRetry = time.Second
	// watchNear is the time before the expiry of a token within which its timer is set exactly. Earlier,
	// the timer is set to half of the time that is left, because tokens do not expire by the clock that
	// timers run on.
	watchNear = 10 * time.Second
)

// watches holds the open streams by the tokens that opened them. While pushes arrive, no work grows
// with the number of streams: every token has one timer, and a revocation finds its streams by id
// or by client.
type watches struct {
	s *Service

	mu       sync.Mutex
	byID     map[idgen.ID]*watched
	byClient map[string]map[*watched]struct{}
	closed   bool

	queue   []*watched // tokens to read from the store
	readers int
	later   []*watched  // tokens whose read failed
	retry   *time.Timer // runs while later is not empty
	paused  bool        // no token is read until retry fires
	patrol  *time.Timer // runs while pushes are lost

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// watched is a token with streams.
type watched struct {
	token   Token
	origin  Origin
	streams map[*stream]struct{}
	expiry  *time.Timer
	queued  bool
}

// stream is one open stream.
type stream struct {
	required Requirement
	cut      func(error)
}

func (w *watches) open(s *Service) {
	w.s = s
	w.byID = make(map[idgen.ID]*watched)
	w.byClient = make(map[string]map[*watched]struct{})
	w.ctx, w.cancel = context.WithCancel(context.Background())
}

func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	w.cancel()
	for _, timer := range []*time.Timer{w.retry, w.patrol} {
		if timer != nil {
			timer.Stop()
		}
	}
	for _, t := range w.byID {
		t.expiry.Stop()
	}
	w.mu.Unlock()
	w.running.Wait()
}

func (w *watches) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byID)
}

// Watch registers a stream that was opened with t on a route that requires required. Watch calls cut
// once when t is no longer valid there: at its expiry, or soon after its revocation; before Watch
// returns if that is known already. The error of cut matches [ErrInvalid], or is an
// [*InsufficientScopeError], or matches [ErrUnavailable] if it cannot be told whether t was revoked.
// cut must not block, because a revocation waits for it.
//
// stop ends the registration. It may be called more than once, and cut may still be running when it
// returns.
func (s *Service) Watch(t *Token, required Requirement, cut func(error)) (stop func()) {
	st := &stream{required, cut}
	s.watches.add(t, st)
	switch err := s.stillGood(t, required); {
	case err != nil:
		if s.watches.remove(t.ID, st) {
			cut(err)
		}
	case !s.cachedFresh(t.ID):
		// It may have been revoked since the decision.
		s.watches.reread(t.ID)
	}
	return func() { s.watches.remove(t.ID, st) }
}

// stillGood checks a token without asking the store.
func (s *Service) stillGood(t *Token, required Requirement) error {
	origin, _ := s.origin(t.ID)
	if err := s.check(t, origin); err != nil {
		return err
	}
	return s.entitled(t, required)
}

// entitled checks that the client of t still has the scope that a route requires.
func (s *Service) entitled(t *Token, required Requirement) error {
	if s.cfg.Clients == nil {
		return nil
	}
	scopes, ok := s.cfg.Clients.Entitled(t.Client, t.Generation)
	if !ok {
		return ErrClient
	}
	if !scopes.Contains(required.Scope) {
		return &InsufficientScopeError{Required: required.Scope}
	}
	return nil
}

// cachedFresh reports whether the cache knows that a token has not been revoked.
func (s *Service) cachedFresh(id idgen.ID) bool {
	var e entry
	return s.cache.get(id, &e) && s.cache.fresh(&e, time.Now())
}

// ClientsChanged tells the service that the responses of [Config.Clients] may have changed for the given
// clients, or for any client if none is given. Before it returns, it cuts the streams that their
// clients are no longer entitled to.
func (s *Service) ClientsChanged(clients ...string) {
	w := &s.watches
	w.mu.Lock()
	if len(clients) == 0 {
		clients = slices.Collect(maps.Keys(w.byClient))
	}
	var doomed []ending
	for _, client := range clients {
		for t := range w.byClient[client] {
			doomed = w.judge(doomed, t, func(st *stream) error { return s.entitled(&t.token, st.required) })
		}
	}
	w.mu.Unlock()
	carryOut(doomed)
}

// rulesAdded cuts the streams that new rules match.
func (s *Service) rulesAdded(added []Rule) {
	w := &s.watches
	w.mu.Lock()
	var doomed []ending
	interval := false
	for _, r := range added {
		if r.Kind != RuleClient {
			interval = true
			continue
		}
		for t := range w.byClient[r.Client] {
			doomed = w.judge(doomed, t, func(*stream) error { return s.cfg.Rules.CheckClient(&t.token) })
		}
	}
	if interval { // one pass for all of them
		for _, t := range w.byID {
			doomed = w.judge(doomed, t, func(*stream) error { return s.cfg.Rules.CheckOrigin(t.origin) })
		}
	}
	w.mu.Unlock()
	carryOut(doomed)
}

// PushesLost tells the service that pushes about revocations elsewhere do not arrive (true), or that
// they arrive again (false; the caller calls Gap as well). Meanwhile the service reads all watched
// tokens from the store once in each [Service.Bound].
func (s *Service) PushesLost(lost bool) {
	w := &s.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || lost == (w.patrol != nil) {
		return
	}
	if !lost {
		w.patrol.Stop()
		w.patrol = nil
		return
	}
	w.enqueue(slices.Collect(maps.Values(w.byID))...)
	w.patrol = time.AfterFunc(s.Bound(), func() { defer panics.Catch(panics.Tokens, nil); w.walk() })
}

// walk reads all watched tokens again, while pushes are lost.
func (w *watches) walk() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.patrol == nil {
		return
	}
	w.enqueue(slices.Collect(maps.Values(w.byID))...)
	w.patrol.Reset(w.s.Bound())
}

// ending is a stream that was removed and must be cut.
type ending struct {
	stream *stream
	err    error
}

// carryOut cuts streams, without a lock.
func carryOut(doomed []ending) {
	for _, e := range doomed {
		e.carryOut()
	}
}

// carryOut cuts one stream. If that panics, the others are cut as well.
func (e ending) carryOut() {
	defer panics.Catch(panics.Exchange, nil)
	e.stream.cut(e.err)
}

// judge removes the streams of t for which tell returns an error or panics, and appends them to
// doomed. After a panic the token may be revoked, so the stream is cut; the other streams are
// checked all the same. The caller holds mu.
func (w *watches) judge(doomed []ending, t *watched, tell func(*stream) error) []ending {
	for st := range t.streams {
		if err := told(tell, st); err != nil {
			doomed = append(doomed, ending{st, err})
			w.take(t, st)
		}
	}
	return doomed
}

// told returns the result of tell, with a panic as [ErrUnavailable].
func told(tell func(*stream) error, st *stream) (err error) {
	var panicked error
	defer func() {
		if panicked != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, panicked)
		}
	}()
	defer panics.Into(panics.Tokens, &panicked)
	return tell(st)
}

// add registers a stream.
func (w *watches) add(token *Token, st *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.byID[token.ID]
	if t == nil {
		t = &watched{token: *token, streams: make(map[*stream]struct{}, 1)}
		t.origin, _ = w.s.origin(token.ID)
		w.byID[token.ID] = t
		if w.byClient[token.Client] == nil {
			w.byClient[token.Client] = make(map[*watched]struct{})
		}
		w.byClient[token.Client][t] = struct{}{}
		t.expiry = time.AfterFunc(w.wait(t), func() { defer panics.Catch(panics.Tokens, nil); w.expire(t) })
	}
	t.streams[st] = struct{}{}
}

// remove ends a registration and reports whether there was one.
func (w *watches) remove(id idgen.ID, st *stream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.byID[id]
	if t == nil {
		return false
	}
	if _, there := t.streams[st]; !there {
		return false
	}
	w.take(t, st)
	return true
}

// take removes a stream of t, and t with its last stream. The caller holds mu.
func (w *watches) take(t *watched, st *stream) {
	delete(t.streams, st)
	if len(t.streams) > 0 {
		return
	}
	t.expiry.Stop()
	delete(w.byID, t.token.ID)
	delete(w.byClient[t.token.Client], t)
	if len(w.byClient[t.token.Client]) == 0 {
		delete(w.byClient, t.token.Client)
	}
}

// cut cuts all streams of a token.
func (w *watches) cut(id idgen.ID, reason error) {
	w.mu.Lock()
	var doomed []ending
	if t := w.byID[id]; t != nil {
		doomed = w.judge(nil, t, func(*stream) error { return reason })
	}
	w.mu.Unlock()
	carryOut(doomed)
}

// wait returns how long to set the timer of t for.
func (w *watches) wait(t *watched) time.Duration {
	rest := t.token.ExpiresAt.Sub(w.s.cfg.Now())
	if rest > watchNear {
		return rest / 2
	}
	return max(rest, 0)
}

// expire is called by the timer of t.
func (w *watches) expire(t *watched) {
	if w.s.cfg.Now().Before(t.token.ExpiresAt) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed && w.byID[t.token.ID] == t {
			t.expiry.Reset(w.wait(t))
		}
		return
	}
	w.mu.Lock()
	var doomed []ending
	if !w.closed && w.byID[t.token.ID] == t {
		doomed = w.judge(nil, t, func(*stream) error { return ErrExpired })
	}
	w.mu.Unlock()
	carryOut(doomed)
}

// reread reads a watched token from the store again.
func (w *watches) reread(id idgen.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.byID[id]; t != nil {
		w.enqueue(t)
	}
}

// rereadAll reads all watched tokens again.
func (w *watches) rereadAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enqueue(slices.Collect(maps.Values(w.byID))...)
}

// enqueue adds tokens to the queue of those to read from the store. The caller holds mu.
func (w *watches) enqueue(ts ...*watched) {
	for _, t := range ts {
		if !t.queued {
			t.queued = true
			w.queue = append(w.queue, t)
		}
	}
	for w.readers < min(watchReaders, len(w.queue)) && !w.paused && !w.closed {
		w.readers++
		w.running.Go(func() { defer panics.Catch(panics.Tokens, w.readBroke); w.read() })
	}
}

// read reads the tokens in the queue until it is empty or the store is unavailable.
func (w *watches) read() {
	failures := 0
	for t := w.next(); t != nil; t = w.next() {
		err := w.load(t.token.ID)
		switch {
		case err == nil:
			failures = 0
		case errors.Is(err, ErrUnknown):
			failures = 0
			w.cut(t.token.ID, w.gone(t))
		default:
			failures++
			w.postpone(t, failures >= watchPatience)
		}
	}
}

// load reads a token from the store. A panic is an error like that of an unavailable store.
func (w *watches) load(id idgen.ID) (err error) {
	defer panics.Into(panics.Tokens, &err)
	ctx, cancel := w.s.bounded(w.ctx)
	defer cancel()
	_, err = w.s.cfg.Store.Load(ctx, id)
	return err
}

// readBroke starts another reader after one that panicked.
func (w *watches) readBroke(error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readers--
	w.enqueue()
}

// next returns the next token to read, nil if the reader must end.
func (w *watches) next() *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 && !w.paused && !w.closed {
		t := w.queue[0]
		w.queue = w.queue[1:]
		t.queued = false // before the read, so that a revocation during the read causes another one
		if w.byID[t.token.ID] == t {
			return t
		}
	}
	w.readers--
	return nil
}

// gone returns the reason why a watched token has no record.
func (w *watches) gone(t *watched) error {
	if !w.s.cfg.Now().Before(t.token.ExpiresAt) {
		return ErrExpired
	}
	return ErrRevoked
}

// postpone has t read again after watchRetry. If pause is set, no other token is read before.
func (w *watches) postpone(t *watched, pause bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.paused = w.paused || pause
	if !t.queued {
		t.queued = true
		w.later = append(w.later, t)
	}
	if w.retry == nil {
		w.retry = time.AfterFunc(watchRetry, func() { defer panics.Catch(panics.Tokens, nil); w.resume() })
	}
}

// resume puts the postponed tokens back into the queue.
func (w *watches) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, w.later...)
	w.later, w.retry, w.paused = nil, nil, false
	w.enqueue()
}
