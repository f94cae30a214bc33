package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/route"
	"snowgate/proxy/transport"
)

// Bounds of name resolution.
const (
	// resolveEvery is how old the addresses of a name may be before they are
	// looked up again, beside the requests that use them.
	ResolveEvery = 5 * time.Second
	// resolveFirst is how old they may be before a request waits for the answer:
	// the name was not in use, and its addresses may be somebody else's by now.
	resolveFirst   = 2 * ResolveEvery
	resolveTimeout = 5 * time.Second
	// maxReplicas bounds what one name may bring.
	maxReplicas = 256
)

// errNoAddress says that a name exists, but has no address.
var errNoAddress = errors.New("proxy: the name of the service has no address")

// upstream is one scheme, host and port that routes send requests to: one replica
// for each address that its name has. It outlives the tables that name it. It is
// safe for concurrent use.
type upstream struct {
	scheme, authority string // of the URLs of requests
	protocol          transport.Protocol
	host, port        string     // of authority
	address           netip.Addr // if host is one; it is never looked up then
	env               *environment

	discovered route.Replica      // the zero value for what a URL names
	source     string             // of discovered
	gone       context.Context    //nolint:containedctx // ends when a discovered replica is gone; nil for others
	vanish     context.CancelFunc // ends it

	list atomic.Pointer[replicas]

	mu      sync.Mutex
	pending chan struct{} // closed when the look-up under way has ended; nil: none is
	failure error         // of the last look-up
	check   *checker      // nil: no active checks
}

// replicas is what a name stood for at one time.
type replicas struct {
	all []*Replica
	at  time.Time
}

// Replica is one address of an upstream, with its own connections.
type Replica struct {
	Upstream  *upstream
	address   string // host and port
	Transport transport.Transport
	health    health
	InFlight  atomic.Int64
	failures  atomic.Uint64
}

func (e *environment) newUpstream(t route.Target) *upstream {
	u := &upstream{scheme: t.Scheme, authority: t.Host, protocol: t.Protocol, env: e}
	if t.Replica.ID != "" {
		u.discovered, u.source = t.Replica, t.Source
		u.gone, u.vanish = context.WithCancel(context.Background())
	}
	parsed := url.URL{Host: t.Host}
	u.host, u.port = parsed.Hostname(), parsed.Port()
	u.port = cmp.Or(u.port, map[string]string{"https": "443"}[t.Scheme], "80")
	if address, err := netip.ParseAddr(u.host); err == nil {
		u.address = address
		u.adopt([]netip.Addr{address})
	}
	return u
}

// adopt makes addresses those of u. Replicas that stay keep their state.
func (u *upstream) adopt(addresses []netip.Addr) {
	known := make(map[string]*Replica)
	if old := u.list.Load(); old != nil {
		for _, r := range old.all {
			known[r.address] = r
		}
	}
	next := &replicas{at: u.env.Time()}
	for _, address := range addresses[:min(len(addresses), maxReplicas)] {
		text := net.JoinHostPort(address.String(), u.port)
		one := known[text]
		if one == nil {
			one = &Replica{Upstream: u, address: text, Transport: u.newTransport(text)}
		}
		delete(known, text)
		next.all = append(next.all, one)
	}
	u.list.Store(next)
	for _, gone := range known {
		gone.Transport.CloseIdleConnections()
	}
}

// current returns the replicas that are known, without waiting, and has them
// looked up again if it is time.
func (u *upstream) current(now time.Time) []*Replica {
	list := u.list.Load()
	switch {
	case u.isGone():
		return nil
	case u.address.IsValid():
		return list.all
	case list == nil || now.Sub(list.at) > resolveFirst:
		u.resolve()
		return nil
	case now.Sub(list.at) > ResolveEvery:
		u.resolve()
	}
	return list.all
}

// Await looks the replicas up and waits for that. If the look-up fails, those that
// were known stay, unless it is certain that there are none any more.
func (u *upstream) Await(ctx context.Context) ([]*Replica, error) {
	if !u.address.IsValid() {
		select {
		case <-u.resolve():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if list := u.list.Load(); list != nil && len(list.all) > 0 {
		return list.all, nil
	}
	failure := u.failure
	if failure == nil {
		failure = errNoAddress
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: failure}
}

// resolve starts to look the addresses up, unless that is under way, and returns
// what is closed at its end.
func (u *upstream) resolve() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending != nil {
		return u.pending
	}
	done := make(chan struct{})
	u.pending = done
	if !u.env.tasks.start(func(ctx context.Context) { u.lookUp(ctx, done) }, nil) {
		u.pending, u.failure = nil, errClosed
		close(done)
	}
	return done
}

// lookUpBroke has the next request look the addresses up again, after a panic.
func (u *upstream) lookUpBroke(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pending, u.failure = nil, err
}

func (u *upstream) lookUp(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	defer panics.Catch(panics.Upstream, u.lookUpBroke) // before those who wait are told
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addresses, err := u.env.lookUp(ctx, u.host)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pending, u.failure = nil, err
	var notFound *net.DNSError
	switch {
	case err == nil, errors.As(err, &notFound) && notFound.IsNotFound:
		u.adopt(addresses)
	default:
		// A resolver that does not answer says nothing about the replicas.
		if list := u.list.Load(); list != nil {
			u.list.Store(&replicas{all: list.all, at: u.env.Time()})
		}
	}
}

// name returns the URL by which routes name u, or where it was discovered and what
// it is called there.
func (u *upstream) name() string {
	if u.gone != nil {
		return u.source + ":" + u.discovered.Name
	}
	if u.protocol == transport.H2C {
		return "h2c://" + u.authority
	}
	return u.scheme + "://" + u.authority
}

// isGone reports whether u was discovered and is not there any more. Its address
// may be somebody else's then, so nothing is sent to it, also by requests that
// still have a table that names it.
func (u *upstream) isGone() bool { return u.gone != nil && u.gone.Err() != nil }

// errGone says that a replica vanished while it was being connected to.
var errGone = errors.New("proxy: the replica is gone")

// newTransport returns the way to a replica of u.
func (u *upstream) newTransport(address string) transport.Transport {
	p := u.protocol
	if u.env.Standard && p == transport.HTTP11 {
		p = transport.Standard11
	}
	return transport.New(address, u.scheme, p, u.whileThere(u.env.dialer()))
}

// whileThere has dial end when u is gone: an attempt that outlives the replica could
// reach who has its address next.
func (u *upstream) whileThere(dial transport.Dialer) transport.Dialer {
	if u.gone == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(u.gone, func() { cancel(errGone) })()
		conn, err := dial(ctx, network, address)
		if err == nil && u.isGone() {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: errGone}
		}
		return conn, err
	}
}

// retire ends what belongs to an upstream that no table names any more. Requests
// under way go on.
func (u *upstream) retire() {
	if u.vanish != nil {
		u.vanish()
	}
	u.setCheck(nil)
	if list := u.list.Load(); list != nil {
		for _, r := range list.all {
			r.Transport.CloseIdleConnections()
		}
	}
}
