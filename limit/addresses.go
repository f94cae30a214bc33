package limit

import (
	"net/netip"
	"time"
)

// Addresses applies one rate to every network address by itself. An IPv6 caller
// is known by the first 64 bits of its address, because a single host usually
// has all the addresses that begin with them. It is safe for concurrent use.
type Addresses struct {
	kind    Kind
	keyed   *Keyed[netip.Addr]
	observe Observer
}

// NewAddresses returns a limiter that reports its decisions to observe as those
// of kind; observe may be nil. size and now are those of [NewKeyed].
func NewAddresses(kind Kind, rate Rate, size int, now func() time.Time, observe Observer) *Addresses {
	return &Addresses{kind: kind, keyed: NewKeyed[netip.Addr](rate, size, now), observe: observe}
}

// Allow decides about one event that comes from addr. A caller without an
// address, as on a Unix socket, cannot be told from others and is not limited.
func (l *Addresses) Allow(addr netip.Addr) Decision {
	if !addr.IsValid() || l.keyed.rate.IsZero() {
		return Decision{Allowed: true}
	}
	decision := l.keyed.Allow(network(addr))
	l.observe.tell(l.kind, decision.Allowed)
	return decision
}

// network returns what stands for all addresses of one host.
func network(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return addr // not reached: every IPv6 address has 64 bits
	}
	return prefix.Addr()
}
