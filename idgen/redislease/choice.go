package redislease

import (
	"fmt"
	"net/netip"

	"snowgate/idgen"
)

// afterOctets is the first number that is nobody's last octet.
const afterOctets = 256

// Choice says which worker numbers a [Source] may take. The zero Choice is that
// of [Any].
type Choice struct {
	claim func(idgen.Layout) (claim, error)
}

// claim is a choice in the terms of acquire.lua: numbers are indexes from 0 to
// Workers()-1, in which the datacenter is the upper part.
type claim struct {
	wanted      int64 // -1: none
	first, last int64 // last < first: no others
	registry    bool
}

// Any takes any free number of the layout, 0…1023 with ten bits, over all
// datacenters where the layout has that field (WORKER_ID=lease, system B).
// Numbers never used come first, in order; then the one that has been free for
// longest.
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

// Only takes this number or fails with an error wrapping [ErrTaken], naming
// the holder (WORKER_ID=number).
func Only(w idgen.Worker) Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		return claim{wanted: l.WorkerIndex(w), first: 0, last: -1}, l.CheckWorker(w)
	}}
}

// OnlyOctet is Only with the last octet of an IPv4 address (WORKER_ID=ipv4). An
// octet wider than the worker field is an error.
func OnlyOctet(datacenter int64, addr netip.Addr) Choice {
	return Choice{func(l idgen.Layout) (claim, error) {
		w, err := octet(l, datacenter, addr)
		return claim{wanted: l.WorkerIndex(w), first: 0, last: -1}, err
	}}
}

// PreferOctet takes the last octet of an IPv4 address, or, where that is leased
// by a gateway at another address, the next free number from 256 up, which can
// be nobody's octet (WORKER_ID=auto). Such a conflict is reported as
// [EventConflict]. A layout with fewer than nine worker bits has no such number.
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

// Registered takes the number that this address keeps for ever, counting up
// from 1 when the address is new (WORKER_ID=registry, system E). When the last
// number of the layout is given out, new addresses get those that [Free] has
// freed, or fail with [ErrExhausted].
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
