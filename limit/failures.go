package limit

import (
	"net/netip"
	"time"
)

// Default rates of failed authentications. They are no defence against guessing,
// which 256 random bits are themselves. They tell a program with a wrong secret
// to slow down, and keep what it costs small: one that retries at once has ten
// tries to be told "wrong" and then one every six seconds. An address has room
// for six such programs behind it.
//
//nolint:gochecknoglobals // structs cannot be constants
var (
	DefaultFailuresPerClient  = Rate{10, time.Minute}
	DefaultFailuresPerAddress = Rate{60, time.Minute}
)

// FailuresConfig is the configuration of [NewFailures]. A zero Rate turns that
// limit off.
type FailuresConfig struct {
	PerClient  Rate
	PerAddress Rate
	Size       int              // of each table, as in [NewKeyed]
	Now        func() time.Time // as in [NewKeyed]
	Observe    Observer         // may be nil
}

// Failures limits how many failed authentications are answered as such, by client
// id and by address. It is asked about failures only, after the secret was
// checked: so a correct secret always passes, and nobody can lock out somebody
// else. It does not know which clients exist, so an unknown id is treated exactly
// like a known one. It is safe for concurrent use.
type Failures struct {
	clients   *Keyed[string]
	addresses *Addresses
	observe   Observer
}

// NewFailures returns a limiter in memory.
func NewFailures(c FailuresConfig) *Failures {
	return &Failures{
		clients:   NewKeyed[string](c.PerClient, c.Size, c.Now),
		addresses: NewAddresses(FailedAddress, c.PerAddress, c.Size, c.Now, c.Observe),
		observe:   c.Observe,
	}
}

// Failed counts one failed authentication that showed the given client id, empty
// if it showed none, and came from remote. It returns an [*ExceededError] if
// there were too many, that of the limit that asks for the longer wait.
func (f *Failures) Failed(client string, remote netip.Addr) error {
	kind, worst := FailedAddress, f.addresses.Allow(remote)
	if client != "" && !f.clients.rate.IsZero() {
		decision := f.clients.Allow(client)
		f.observe.tell(FailedClient, decision.Allowed)
		if decision.RetryAfter > worst.RetryAfter {
			kind, worst = FailedClient, decision
		}
	}
	if worst.Allowed {
		return nil
	}
	return &ExceededError{Kind: kind, Decision: worst}
}
