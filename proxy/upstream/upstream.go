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
	// resolveEvery is the age at which addresses are looked up again, in the background.
	ResolveEvery = 5 * time.Second
	// resolveFirst is the age at which a request waits for the look-up: the name was unused, and
	// its addresses may belong to somebody else by now.
	resolveFirst   = 2 * ResolveEvery
	resolveTimeout = 5 * time.Second
	// maxReplicas limits how many addresses of one name are used.
	maxReplicas = 256
)

// errNoAddress says that a name exists, but has no address.
var errNoAddress = errors.New("proxy: the name of the service has no address")

// upstream is a scheme, host and port that routes send requests to, with a replica for each address
// of the host. It outlives the tables that name it. It is safe for concurrent use.
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

// replicas are the addresses of a name at one time.
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

// adopt replaces the addresses of u. Replicas whose address stays keep their state.
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

// current returns the known replicas without waiting, and starts a look-up if they are old.
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

// Await looks the addresses up and waits for the result. If the look-up fails, the known replicas
// stay, unless the name certainly has no address any more.
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

// resolve starts a look-up unless one runs, and returns a channel that is closed at its end.
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

// lookUpBroke records that a look-up panicked. The next request starts another one.
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

// name returns the URL by which routes name u. For a discovered replica it is the source and its
// name.
func (u *upstream) name() string {
	if u.gone != nil {
		return u.source + ":" + u.discovered.Name
	}
	if u.protocol == transport.H2C {
		return "h2c://" + u.authority
	}
	return u.scheme + "://" + u.authority
}

// isGone reports whether u was discovered and has vanished. Its address may belong to somebody else
// then, so nothing is sent to it, not even by requests whose table still names it.
func (u *upstream) isGone() bool { return u.gone != nil && u.gone.Err() != nil }

// errGone means that a replica vanished while a connection to it was being made.
var errGone = errors.New("proxy: the replica is gone")

// newTransport returns a transport to one address of u.
func (u *upstream) newTransport(address string) transport.Transport {
	p := u.protocol
	if u.env.Standard && p == transport.HTTP11 {
		p = transport.Standard11
	}
	return transport.New(address, u.scheme, p, u.whileThere(u.env.dialer()))
}

// whileThere wraps dial so that it fails once u is gone. Otherwise an attempt that outlives the
// replica could reach the next holder of its address.
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

// retire stops the checks of an upstream that no table names any more and closes its idle
// connections. Requests in flight go on.
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
