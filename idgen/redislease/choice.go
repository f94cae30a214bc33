package redislease

import (
	"fmt"
	"net/netip"

	"snowgate/idgen"
)

// afterOctets is the first number that cannot be the last octet of an address.
const afterOctets = 256

// Choice says which worker numbers a [Source] may take. The zero Choice is that
// of [Any].
type Choice struct {
	claim func(idgen.Layout) (claim, error)
}

// claim is a Choice in the form that acquire.lua takes: numbers are indexes from 0 to Workers()-1,
// whose upper bits are the datacenter.
type claim struct {
	wanted      int64 // -1: none
	first, last int64 // last < first: no others
	registry    bool
}

// Any takes any free number of the layout, 0…1023 with ten bits, in all datacenters if the layout
// has that field (WORKER_ID=lease, system B). It takes numbers that were never used first, in
// order, and then the number that has been free for the longest time.
func Any() Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		return claim{wanted: -1, first: 0, last: l.Workers() - 1}, nil
	}}
}

// AnyIn is Any within one datacenter.
func AnyIn(datacenter int64) Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		first := idgen.Worker{Datacenter: datacenter}
		last := idgen.Worker{Datacenter: datacenter, Number: l.Max(idgen.FieldWorker)}
		return claim{wanted: -1, first: l.WorkerIndex(first), last: l.WorkerIndex(last)}, l.CheckWorker(first)
	}}
}

// Only takes this number, or fails with an error that wraps [ErrTaken] and names the holder
// (WORKER_ID=number).
func Only(w idgen.Worker) Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		return claim{wanted: l.WorkerIndex(w), first: 0, last: -1}, l.CheckWorker(w)
	}}
}

// OnlyOctet is Only for the last octet of an IPv4 address (WORKER_ID=ipv4). An octet that does not
// fit the worker field is an error.
func OnlyOctet(datacenter int64, addr netip.Addr) Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		w, err := octet(l, datacenter, addr)
		return claim{wanted: l.WorkerIndex(w), first: 0, last: -1}, err
	}}
}

// PreferOctet takes the last octet of an IPv4 address. If a gateway at another address has leased
// it, PreferOctet takes the next free number from 256 up, which cannot be an octet
// (WORKER_ID=auto), and reports [EventConflict]. A layout with fewer than nine worker bits has no
// such number.
func PreferOctet(datacenter int64, addr netip.Addr) Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		w, err := octet(l, datacenter, addr)
		base := l.WorkerIndex(idgen.Worker{Datacenter: datacenter})
		return claim{
			wanted: base + w.Number,
			first:  base + afterOctets,
			last:   base + l.Max(idgen.FieldWorker),
		}, err
	}}
}

// Registered takes the number that this address keeps for ever (WORKER_ID=registry, system E). A
// new address gets the next number, counting up from 1. After the last number of the layout, new
// addresses get numbers that [Free] has freed, or the error is [ErrExhausted].
func Registered() Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		return claim{wanted: -1, first: 1, last: l.Workers() - 1, registry: true}, nil
	}}
}

func octet(l idgen.Layout, datacenter int64, addr netip.Addr) (idgen.Worker, error) {
	n, err := idgen.LastOctet(addr)
	if err != nil {
		return idgen.Worker{}, err
	}
	w := idgen.Worker{Datacenter: datacenter, Number: n}
	if err := l.CheckWorker(w); err != nil {
		return w, fmt.Errorf("last octet of %s: %w", addr, err)
	}
	return w, nil
}

func (c Choice) of(l idgen.Layout) (claim, error) {
	if c.claim == nil {
		c = Any()
	}
	cl, err := c.claim(l)
	if err != nil {
		return claim{}, fmt.Errorf("redislease: %w: %w", idgen.ErrNoWorker, err)
	}
	return cl, nil
}
