package tokens

import (
	"context"
	"net/netip"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
)

// Generator makes the ids of new tokens.
type Generator interface {
	// Next returns an id that nobody else is given. It may wait until ctx ends.
	Next(ctx context.Context) (idgen.ID, error)
}

// Observer is called with the result of every call, in the words of [Reason]. It is called by many
// goroutines at once and must not block.
type Observer interface {
	Issued(result string)
	Validated(result string)
	Revoked(result string)
}

// DecisionObserver is called with details of decisions about tokens. It is called by many
// goroutines at once and must not block.
type DecisionObserver interface {
	// CacheLookup is called for every lookup in the cache: hit means that the store need not be
	// asked.
	CacheLookup(hit bool)
	// TokenAge is called with the age of every token that was accepted.
	TokenAge(age time.Duration)
	// FailStaticUse is called for every token that was accepted although the store could not be
	// asked or the rules not be confirmed.
	FailStaticUse()
}

// ClientPolicy knows what clients may have now, whatever their tokens say.
// It is asked by many goroutines at once and must not block.
type ClientPolicy interface {
	// Entitled returns the scopes that client may have with a token of that generation; ok is
	// false if there is no such client, it is disabled, or its tokens of that generation were
	// ended, as those of a client that was deleted and made anew.
	Entitled(client string, generation uint64) (scopes scope.List, ok bool)
	// Version changes whenever any response of Entitled may have changed.
	Version() uint64
}

// UnknownLimiter limits how many tokens from one address are refused as such after
// they were looked up. It is called by many goroutines at once and must not block.
type UnknownLimiter interface {
	// Failed counts a token from addr that was looked up and is not good. If there
	// were too many, ok is false, and retryAfter is how long addr had better wait.
	Failed(addr netip.Addr) (retryAfter time.Duration, ok bool)
}

// DefaultCacheSize is the number of cached tokens unless [Config] says otherwise.
const DefaultCacheSize = 100_000

// Config is what a [Service] is made of.
type Config struct {
	Store Store     // required
	Keys  *Keyring  // required; its owner runs it
	IDs   Generator // required

	// MintTime reads the instant from an id. Required.
	MintTime func(idgen.ID) time.Time
	// Worker reads the worker number from an id, as idgen.Layout.WorkerIndex
	// counts, and reports whether the id is one that the layout can have. nil:
	// every id is, and is worker 0's.
	Worker func(idgen.ID) (worker int64, ok bool)
	// Now is the clock that tokens expire by. Default: time.Now.
	Now func() time.Time
	// Timeout bounds each call that asks the store, however many round trips it
	// takes. 0: only ctx does.
	Timeout time.Duration

	// Unfit returns why nothing may be decided or issued at all, an error that
	// matches [ErrUnavailable]; nil if all is well. It is asked before every
	// decision, by many goroutines at once. nil: all is always well.
	Unfit func() error

	// Rules are the revocation rules. Until they are loaded, nothing is decided
	// or issued. nil: there are none.
	Rules *Rules
	// Confirmed returns the last instant (time.Now, with its monotonic reading) at
	// which Rules, and what Clients rests on, were known to be what the store
	// holds; false if there was none yet. No token is found good on what was
	// confirmed longer ago than [Service.Bound]. nil: they always are.
	Confirmed func() (at time.Time, ok bool)
	// Scanner finds the tokens that [Service.CountRule] counts. nil: it counts none and fails.
	Scanner Scanner
	// Clients says what clients may have now; nil: what their tokens say.
	Clients ClientPolicy

	// CacheTTL is how long a token that was found good is so without the store
	// being asked again, counted from the question. 0: there is no cache.
	CacheTTL time.Duration
	// CacheSize is the greatest number of cached tokens. Default: DefaultCacheSize.
	CacheSize int
	// FailStatic is how much longer a cached token is served while the store
	// cannot be asked or the rules cannot be confirmed. 0: not at all.
	FailStatic time.Duration
	// OnFailStatic, if set, is told when tokens begin to be served by FailStatic,
	// and when that is over. It must not block.
	OnFailStatic func(active bool)
	// Unknown is told of tokens that were looked up and refused, and limits how many
	// are answered as such; nil: nothing does. It never keeps a good token out.
	Unknown UnknownLimiter

	// OnWriteBack, if set, is told of each token that had been revoked, was in the store again, and was
	// revoked anew. It must not block.
	OnWriteBack func(idgen.ID)
	// OnMissing, if set, is told of each cached token whose record is gone from the store although its
	// time has not come and no revocation was heard of. It must not block.
	OnMissing func(idgen.ID)

	// Observer counts results; may be nil.
	Observer Observer
	// Decisions observes how tokens are found good; may be nil.
	Decisions DecisionObserver
	// DuplicateID, if set, is told of every id that turned out to be taken:
	// two generators work under one worker number.
	DuplicateID func(idgen.ID)
}

// withDefaults returns cfg with its optional fields set. It panics if a required
// field is missing.
func (cfg Config) withDefaults() Config {
	if cfg.Store == nil || cfg.Keys == nil || cfg.IDs == nil || cfg.MintTime == nil {
		panic("tokens: NewService without Store, Keys, IDs or MintTime")
	}
	if cfg.Worker == nil {
		cfg.Worker = func(idgen.ID) (int64, bool) { return 0, true }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.CacheSize == 0 {
		cfg.CacheSize = DefaultCacheSize
	}
	if cfg.Unfit == nil {
		cfg.Unfit = func() error { return nil }
	}
	if cfg.OnWriteBack == nil {
		cfg.OnWriteBack = func(idgen.ID) {}
	}
	if cfg.OnMissing == nil {
		cfg.OnMissing = func(idgen.ID) {}
	}
	if cfg.OnFailStatic == nil {
		cfg.OnFailStatic = func(bool) {}
	}
	if cfg.Observer == nil {
		cfg.Observer = silent{}
	}
	if cfg.Decisions == nil {
		cfg.Decisions = silent{}
	}
	if cfg.DuplicateID == nil {
		cfg.DuplicateID = func(idgen.ID) {}
	}
	return cfg
}

// silent is the observer in place of nil.
type silent struct{}

func (silent) Issued(string)          {}
func (silent) Validated(string)       {}
func (silent) Revoked(string)         {}
func (silent) CacheLookup(bool)       {}
func (silent) TokenAge(time.Duration) {}
func (silent) FailStaticUse()         {}

// WorkerOf returns the [Config.Worker] of a scheme.
func WorkerOf(scheme idgen.Scheme) func(idgen.ID) (int64, bool) {
	layout := scheme.Layout()
	return func(id idgen.ID) (int64, bool) {
		f, err := layout.Unpack(id)
		if err != nil {
			return 0, false
		}
		return layout.WorkerIndex(idgen.Worker{Datacenter: f.Datacenter, Number: f.Worker}), true
	}
}
