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
	// Next returns an id that is never given out again. It may block until ctx ends.
	Next(ctx context.Context) (idgen.ID, error)
}

// Observer is called with the result of every call, as a word of [Reason]. Its methods are called
// concurrently and must not block.
type Observer interface {
	Issued(result string)
	Validated(result string)
	Revoked(result string)
}

// DecisionObserver is called with details of decisions about tokens. Its methods are called
// concurrently and must not block.
type DecisionObserver interface {
	// CacheLookup is called for every lookup in the cache. hit means that no round trip to the
	// store is needed.
	CacheLookup(hit bool)
	// TokenAge is called with the age of every token that was accepted.
	TokenAge(age time.Duration)
	// FailStaticUse is called for every token that was accepted although the store was unavailable
	// or the rules were not confirmed.
	FailStaticUse()
}

// ClientPolicy knows what clients may do now, independent of the tokens that they have. Its methods
// are called concurrently and must not block.
type ClientPolicy interface {
	// Entitled returns the scopes that client may use with a token of that generation. ok is false
	// if there is no such client, if it is disabled, or if its tokens of that generation were
	// revoked, as when a client is deleted and created again.
	Entitled(client string, generation uint64) (scopes scope.List, ok bool)
	// Version returns a number that changes whenever any result of Entitled may have changed.
	Version() uint64
}

// UnknownLimiter limits the number of tokens from one address that are looked up and refused. Its
// methods are called concurrently and must not block.
type UnknownLimiter interface {
	// Failed counts a token from addr that was looked up and refused. If there were too many, ok is
	// false, and retryAfter is how long addr should wait.
	Failed(addr netip.Addr) (retryAfter time.Duration, ok bool)
}

// DefaultCacheSize is the number of cached tokens unless [Config] says otherwise.
const DefaultCacheSize = 100_000

// Config configures a [Service].
type Config struct {
	Store Store     // required
	Keys  *Keyring  // required; its owner runs it
	IDs   Generator // required

	// MintTime returns the mint time in an id. Required.
	MintTime func(idgen.ID) time.Time
	// Worker returns the worker number in an id, in the numbering of idgen.Layout.WorkerIndex, and
	// whether the layout permits the id. nil: every id is permitted and belongs to worker 0.
	Worker func(idgen.ID) (worker int64, ok bool)
	// Now is the clock for the expiry of tokens. Default: time.Now.
	Now func() time.Time
	// Timeout limits each call that uses the store, with all its round trips. 0: only ctx limits
	// it.
	Timeout time.Duration

	// Unfit returns why the gateway may neither validate nor issue tokens: an error that matches
	// [ErrUnavailable], or nil. It is called before every decision, concurrently. nil: the gateway
	// always may.
	Unfit func() error

	// Rules holds the revocation rules. Until they are loaded, the service neither validates nor
	// issues tokens. nil: there are none.
	Rules *Rules
	// Confirmed returns the last instant (time.Now, with its monotonic reading) at which Rules, and
	// the data of Clients, were known to be current; ok is false if there was none yet. The service
	// accepts no token by data that was confirmed longer ago than [Service.Bound]. nil: the data is
	// always current.
	Confirmed func() (at time.Time, ok bool)
	// Scanner lists the tokens for [Service.CountRule]. nil: CountRule fails.
	Scanner Scanner
	// Clients says what clients may do now. nil: whatever their tokens permit.
	Clients ClientPolicy

	// CacheTTL is how long the service accepts a valid token without reading the store again, from
	// the moment before the read. 0: there is no cache.
	CacheTTL time.Duration
	// CacheSize is the maximum number of cached tokens. Default: DefaultCacheSize.
	CacheSize int
	// FailStatic is how much longer the service accepts a cached token while the store is
	// unavailable or the rules cannot be confirmed. 0: no longer.
	FailStatic time.Duration
	// OnFailStatic, if set, is called when the service begins to accept tokens by FailStatic, and
	// when it no longer does. It must not block.
	OnFailStatic func(active bool)
	// Unknown, if set, counts the tokens that were looked up and refused, and limits how many of
	// them get an ordinary refusal. It never causes a valid token to be refused.
	Unknown UnknownLimiter

	// OnWriteBack, if set, is called for each revoked token that was in the store again, and that
	// the service has revoked again. It must not block.
	OnWriteBack func(idgen.ID)
	// OnMissing, if set, is called for each cached token whose record is missing from the store
	// although the token has not expired and no revocation was received. It must not block.
	OnMissing func(idgen.ID)

	// Observer, if set, counts results.
	Observer Observer
	// Decisions, if set, observes decisions about tokens.
	Decisions DecisionObserver
	// DuplicateID, if set, is called with every id that was taken already. This means that two
	// generators use the same worker number.
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

// silent is the default observer. It does nothing.
type silent struct{}

func (silent) Issued(string)          {}
func (silent) Validated(string)       {}
func (silent) Revoked(string)         {}
func (silent) CacheLookup(bool)       {}
func (silent) TokenAge(time.Duration) {}
func (silent) FailStaticUse()         {}

// WorkerOf returns a [Config.Worker] for a scheme.
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
