package route

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rs/cors"

	"snowgate/limit"
	"snowgate/proxy/transport"
	"snowgate/request/canonical"
	"snowgate/tokens"
)

// DefaultTimeout is how long a service may take to the header of its answer
// where its route does not say.
const DefaultTimeout = 30 * time.Second

// Route says which requests go to which service, and what they need for it.
// It is configuration: [NewTable] checks and copies it.
type Route struct {
	// Name identifies the route in logs, metrics and faults. Required, unique.
	Name string
	// Host is the only host the route answers to, without a port. Empty: any.
	Host string
	// Path is the prefix of the paths the route answers to, at a segment
	// boundary: /a is a prefix of /a and /a/b, not of /ab. Required.
	Path string
	// Source is where the route was learned from, "file" if empty, and Owner whose
	// it is there. They are for people: faults and logs name them.
	Source, Owner string
	// Upstreams are the base URLs of the service. Each address of their names is
	// a replica. A route without any cannot be requested; it serves forward-auth.
	Upstreams []*url.URL
	// Discovered tells that the service has Replicas, and no Upstreams. Without any
	// for the moment, requests are answered 503.
	Discovered bool
	Replicas   []Replica
	// StripPrefix removes Path from the path before it is forwarded.
	StripPrefix bool
	// Methods are the methods that are allowed, and no others: HEAD and OPTIONS
	// have to be named. Empty: all but CONNECT and TRACE.
	Methods []string
	// Requirement is what a token must be good for.
	Requirement tokens.Requirement
	// Public lets requests pass without a token.
	Public bool
	// Standard has HTTP/1.1 without TLS sent by the transport of net/http too, which sends all
	// the rest: the way to settle a doubt about ours.
	Standard bool
	// WebSocket lets connections be upgraded to the WebSocket protocol.
	WebSocket bool
	// PassToken forwards the client's Authorization header.
	PassToken bool
	// Timeout bounds the wait for the header of the answer, not counting the
	// time in which the client sends its body. 0: [DefaultTimeout].
	Timeout time.Duration
	// MaxBody bounds the request body, in bytes. 0: no bound.
	MaxBody int64
	// AllowEncodedSlash accepts paths with an encoded slash.
	AllowEncodedSlash bool
	// Balance is how the replica of a request is chosen. Empty: [RoundRobin].
	Balance Balance
	// Health, if set, has every replica asked for how it does. Routes with the
	// same upstream must agree.
	Health *HealthCheck
	// MaxInFlight bounds the requests that wait for an answer or are answered at
	// one time, streams included. 0: no bound.
	MaxInFlight int

	// Rate bounds how often the route is asked, ClientRate how often by one client.
	// The zero value is no bound.
	Rate, ClientRate limit.Rate
	// AddPrefix goes before the path that is forwarded, after StripPrefix.
	AddPrefix string
	// EditRequest and EditResponse change the header of requests and of answers of the
	// service.
	EditRequest, EditResponse Edits
	// HostHeader is what Host says to the service; UpstreamHost has it say the host
	// of the upstream's URL. Neither: what the client has sent.
	HostHeader   string
	UpstreamHost bool

	// CORS, if set, has the gateway answer browsers about pages of other origins.
	// Nil leaves that to the service.
	CORS *CORS

	// What NewTable works out.
	Targets  []Target // of Upstreams
	allow    methods  // of Methods
	segments int      // in Path
	cors     *cors.Cors
}

// Replica is one instance of a service that was found by other means than by the
// addresses of a name.
type Replica struct {
	// ID tells replicas apart: what is known of one, and the connections to it, are
	// never another's, even if it has the same address. Required.
	ID string
	// Name is for people.
	Name string
	// URL is scheme, address and port. Required.
	URL *url.URL
}

// Target is one upstream, with its name in logs.
type Target struct {
	transport.Destination

	Base, Name string
	Replica    Replica // the zero value for what a URL names
	Source     string  // of its route
}

// UpstreamKey tells upstreams apart: targets that differ only in their path share
// one.
func (t Target) UpstreamKey() string {
	return t.Scheme + "://" + t.Host + " " + string(t.Protocol) + " " + t.Replica.ID
}

// methods are those that are allowed, as the Allow header field lists them; without any, all but
// CONNECT and TRACE are.
type methods string

func (m methods) Include(method string) bool {
	if m == "" {
		return method != http.MethodConnect && method != http.MethodTrace
	}
	for allowed := range strings.SplitSeq(string(m), ", ") {
		if method == allowed {
			return true
		}
	}
	return false
}

// compile returns a copy of r that is ready for use, or all its faults.
func (r Route) compile() (*Route, error) {
	r.Methods = slices.Clone(r.Methods)
	r.allow = methods(strings.Join(r.Methods, ", "))
	faults := []error{r.checkName(), r.checkPath(), r.checkMethods(), r.checkLimits(), r.checkBalance(), r.Rate.Valid(), r.ClientRate.Valid()}
	host, err := r.normalHost()
	faults = append(faults, err, r.compileEdits(), r.compileCORS())
	r.Host = host
	r.Upstreams = slices.Clone(r.Upstreams)
	faults = append(faults, r.compileTargets())
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("%s: %w", r.whose(), err)
	}
	// A request reads both, and finds them in one line of the processor's cache.
	texts := r.Path + r.Name
	r.Path, r.Name = texts[:len(r.Path)], texts[len(r.Path):]
	r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
	if r.Health != nil {
		check := r.Health.withDefaults()
		r.Health = &check
	}
	if r.Path != "/" {
		r.segments = strings.Count(r.Path, "/")
	}
	return &r, nil
}

// compileEdits checks and copies what a route changes.
func (r *Route) compileEdits() error {
	var requestFault, answerFault, hostFault, prefixFault error
	r.EditRequest, requestFault = r.EditRequest.compile()
	r.EditResponse, answerFault = r.EditResponse.compile()
	if r.AddPrefix != "" {
		if err := canonical.ValidPrefix(r.AddPrefix); err != nil {
			prefixFault = fmt.Errorf("prefix %q: %w", r.AddPrefix, err)
		}
		r.AddPrefix = strings.TrimSuffix(r.AddPrefix, "/") // of "/" nothing is left
	}
	if _, err := canonical.Host(r.HostHeader); r.HostHeader != "" && err != nil {
		hostFault = fmt.Errorf("host header %q: %w", r.HostHeader, err)
	}
	if r.HostHeader != "" && r.UpstreamHost {
		hostFault = errors.New("the host header is either a name or that of the upstream")
	}
	return errors.Join(requestFault, answerFault, prefixFault, hostFault)
}

// compileCORS checks and copies what a route says to browsers.
func (r *Route) compileCORS() error {
	if r.CORS == nil {
		return nil
	}
	own := *r.CORS
	if len(own.Methods) == 0 {
		own.Methods = r.Methods
	}
	if len(own.Methods) == 0 {
		own.Methods = browserMethods
	}
	if err := own.valid(r); err != nil {
		return fmt.Errorf("cors: %w", err)
	}
	r.CORS = &own
	r.cors = cors.New(own.options())
	return nil
}

// compileTargets works the targets out.
func (r *Route) compileTargets() error {
	var faults []error
	add := func(u *url.URL, replica Replica) {
		t, err := newTarget(u, r.WebSocket)
		if r.Standard && t.Protocol == transport.HTTP11 {
			t.Protocol = transport.Standard11
		}
		t.Replica, t.Source = replica, r.Source
		faults = append(faults, err)
		r.Targets = append(r.Targets, t)
	}
	r.Targets = nil
	for _, upstream := range r.Upstreams {
		add(upstream, Replica{})
	}
	ids := make(map[string]bool, len(r.Replicas))
	r.Replicas = slices.Clone(r.Replicas)
	for _, replica := range r.Replicas {
		if replica.ID == "" || ids[replica.ID] {
			faults = append(faults, fmt.Errorf("replica %q has no id of its own", replica.Name))
		}
		ids[replica.ID] = true
		if replica.URL != nil {
			if _, err := netip.ParseAddr(replica.URL.Hostname()); err != nil {
				faults = append(faults, fmt.Errorf("replica %q has no address: %w", replica.Name, err))
			}
		}
		add(replica.URL, replica)
	}
	if r.Discovered && len(r.Upstreams) > 0 || !r.Discovered && len(r.Replicas) > 0 {
		faults = append(faults, errors.New("a route has upstreams, or replicas if it was discovered, but not both"))
	}
	return errors.Join(faults...)
}

// forwards reports whether requests can be forwarded, now or once there is a
// replica.
func (r *Route) forwards() bool { return len(r.Targets) > 0 || r.Discovered }

// Says reports whether r and other say the same.
func (r *Route) Says(other *Route) bool {
	a, b := *r, *other
	a.cors, b.cors = nil, nil // made of CORS
	return reflect.DeepEqual(a, b)
}

// whose names r and whose it is, for faults.
func (r *Route) whose() string {
	name := fmt.Sprintf("route %q", r.Name)
	switch {
	case r.Owner != "":
		return name + " of " + r.Owner
	case r.Source != "":
		return name + " of the " + r.Source
	}
	return name
}

func (r *Route) checkName() error {
	if r.Name == "" {
		return errors.New("a route needs a name")
	}
	return nil
}

func (r *Route) checkPath() error {
	if err := canonical.ValidPrefix(r.Path); err != nil {
		return fmt.Errorf("path %q: %w", r.Path, err)
	}
	return nil
}

func (r *Route) checkMethods() error {
	var faults []error
	for _, method := range r.Methods {
		if !isMethod(method) || method == http.MethodConnect || method == http.MethodTrace {
			faults = append(faults, fmt.Errorf("method %q cannot be allowed", method))
		}
	}
	return errors.Join(faults...)
}

func (r *Route) checkLimits() error {
	switch {
	case r.Timeout < 0:
		return fmt.Errorf("timeout %v is negative", r.Timeout)
	case r.MaxBody < 0:
		return fmt.Errorf("body limit %d is negative", r.MaxBody)
	case r.MaxInFlight < 0:
		return fmt.Errorf("limit %d of requests in flight is negative", r.MaxInFlight)
	case r.Public && !r.ClientRate.IsZero():
		return errors.New("a public route knows no clients and can have no rate for them")
	case r.Public && r.Requirement != (tokens.Requirement{}):
		return errors.New("a public route cannot ask for a scope or an audience")
	}
	return nil
}

func (r *Route) checkBalance() error {
	switch {
	case r.Balance != "" && r.Balance != RoundRobin && r.Balance != LeastInFlight:
		return fmt.Errorf("balance %q is neither %s nor %s", r.Balance, RoundRobin, LeastInFlight)
	case r.Health != nil:
		return r.Health.valid()
	}
	return nil
}

// normalHost returns the host by which the route is looked up.
func (r *Route) normalHost() (string, error) {
	if r.Host == "" {
		return "", nil
	}
	host, err := canonical.Host(r.Host)
	if err != nil || host != strings.TrimSuffix(strings.ToLower(r.Host), ".") {
		return "", fmt.Errorf("host %q is not the name of a host without a port", r.Host)
	}
	return host, nil
}

// newTarget reads an upstream. A WebSocket needs HTTP/1.1: net/http cannot send its
// handshake over HTTP/2 (RFC 8441).
func newTarget(u *url.URL, webSocket bool) (Target, error) {
	switch {
	case u == nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return Target{}, errors.New("an upstream needs a host")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return Target{}, fmt.Errorf("upstream %q is neither http nor https nor h2c", u.Redacted())
	case u.Scheme == "h2c" && webSocket:
		return Target{}, fmt.Errorf("upstream %q speaks HTTP/2 only, but a WebSocket needs HTTP/1.1", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Target{}, fmt.Errorf("upstream %q has more than scheme, host, port and path", u.Redacted())
	}
	base := strings.TrimSuffix(u.EscapedPath(), "/")
	if base != "" {
		if _, err := canonical.ParsePath(base); err != nil {
			return Target{}, fmt.Errorf("upstream %q: %w", u.Redacted(), err)
		}
	}
	t := Target{
		Destination: transport.Destination{Scheme: u.Scheme, Host: u.Host, Protocol: transport.HTTP11},
		Base:        base, Name: u.Scheme + "://" + u.Host + base,
	}
	switch {
	case u.Scheme == "h2c":
		t.Scheme, t.Protocol = "http", transport.H2C
	case u.Scheme == "https" && !webSocket:
		t.Protocol = transport.Negotiated
	}
	return t, nil
}

// isMethod reports whether text is a method as they are written: upper-case
// letters, digits and dashes. Methods are case-sensitive (RFC 9110 §9.1), so
// "get" in a configuration would never match.
func isMethod(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return text != ""
}
