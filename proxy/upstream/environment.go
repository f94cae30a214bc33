package upstream

import (
	"context"
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/transport"
)

// errClosed says that the router was closed.
var errClosed = errors.New("proxy: the router is closed")

// Resolver looks up the addresses of a name. [net.Resolver] is one.
type Resolver interface {
	// LookupNetIP is that of [net.Resolver]; network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options are the settings of a [Set]. They must be set before the first table. The zero value is
// usable.
type Options struct {
	Resolver Resolver                                  // nil: net.DefaultResolver
	Now      func() time.Time                          // nil: time.Now
	Dial     transport.Dialer                          // nil: transport.DialService
	Starts   func(round uint64) uint64                 // where a round of turns begins; nil: randomStart
	Standard bool                                      // HTTP/1.1 without TLS is sent by the transport of net/http, too
	Checked  func(upstream, address string, err error) // told when the check of a replica fails first, or passes again; nil: nobody is
}

// environment holds what all upstreams of a [Set] share. It is safe for concurrent use.
type environment struct {
	Options

	begun    time.Time // the first table was adopted; requests read it, but come after the table
	tasks    tasks
	ejecting sync.Mutex // held while a replica is judged; before all others
}

// startOf returns at which place a round of turns begins.
func (e *environment) startOf(round uint64) uint64 {
	if e.Starts != nil {
		return e.Starts(round)
	}
	return randomStart(round)
}

// turnSeed makes the order of turns unpredictable for clients.
var turnSeed = maphash.MakeSeed()

// randomStart returns the replica at which a round of turns begins. With a fixed order, a client could
// direct all its failing requests at one replica and have it ejected.
func randomStart(round uint64) uint64 { return maphash.Comparable(turnSeed, round) }

// dialer returns what opens connections to replicas, in time.
func (e *environment) dialer() transport.Dialer {
	if e.Dial != nil {
		return transport.InTime(e.Dial)
	}
	return transport.InTime(transport.DialService)
}

// Time returns the time by the clock of the set.
func (e *environment) Time() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}

// period returns the number of the period that now is in.
func (e *environment) period(now time.Time) int64 { return 1 + int64(now.Sub(e.begun)/period) }

// lookUp returns the addresses of host, sorted.
func (e *environment) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	var resolver Resolver = net.DefaultResolver
	if e.Resolver != nil {
		resolver = e.Resolver
	}
	addresses, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses), nil
}

// tasks are the look-ups and checks of a set, which belong to no request. It is safe for concurrent use.
type tasks struct {
	mu      sync.Mutex      // guards what follows
	ctx     context.Context //nolint:containedctx // of the tasks
	cancel  context.CancelFunc
	closed  bool
	running sync.WaitGroup
}

// start runs work on a goroutine of its own, unless the tasks were stopped. work ends with its context.
// If work panics, broken is called, unless it is nil.
func (t *tasks) start(work func(context.Context), broken func(error)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancel(context.Background())
	}
	ctx := t.ctx
	t.running.Go(func() { defer panics.Catch(panics.Upstream, broken); work(ctx) })
	return true
}

// stop ends what runs, and lets nothing else begin.
func (t *tasks) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.cancel != nil {
		t.cancel()
	}
}

// wait returns when nothing runs any more. It must be called after stop.
func (t *tasks) wait() { t.running.Wait() }
