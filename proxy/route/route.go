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

	"snowgate/internal/request/canonical"
	"snowgate/limit"
	"snowgate/proxy/transport"
	"snowgate/tokens"
)

// DefaultTimeout is the response timeout of routes that set none.
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
	// Source is where the route comes from, "file" if empty. Owner is who owns it there. Both are
	// for people: error texts and logs name them.
	Source, Owner string
	// Upstreams are the base URLs of the service. Each address of their names is
	// a replica. A route without any cannot be requested; it serves forward-auth.
	Upstreams []*url.URL
	// Discovered means that the service has Replicas and no Upstreams. While there is no replica,
	// requests get 503.
	Discovered bool
	Replicas   []Replica
	// StripPrefix removes Path from the path before it is forwarded.
	StripPrefix bool
	// Methods are the methods that are allowed, and no others: HEAD and OPTIONS
	// have to be named. Empty: all but CONNECT and TRACE.
	Methods []string
	// Requirement is the scope and audience that a token must have.
	Requirement tokens.Requirement
	// Resource, if set, makes the route an OAuth protected resource of its own (RFC 9728).
	Resource Resource
	// Public lets requests pass without a token.
	Public bool
	// Standard sends HTTP/1.1 without TLS through net/http as well, which sends everything else.
	// An operator can settle a doubt about our transport with it.
	Standard bool
	// WebSocket lets connections be upgraded to the WebSocket protocol.
	WebSocket bool
	// PassToken forwards the client's Authorization header.
	PassToken bool
	// Timeout limits the wait for the header of the response. The time in which the client sends
	// its body does not count. 0: [DefaultTimeout].
	Timeout time.Duration
	// MaxBody limits the request body, in bytes. 0: no limit.
	MaxBody int64
	// AllowEncodedSlash accepts paths with an encoded slash.
	AllowEncodedSlash bool
	// Balance is how the replica of a request is chosen. Empty: [RoundRobin].
	Balance Balance
	// Health, if set, is the active check of every replica. Routes with the same upstream must
	// agree.
	Health *HealthCheck
	// MaxInFlight limits the requests that are in flight at one time, streams included. 0: no
	// limit.
	MaxInFlight int

	// Rate limits how often the route is requested, ClientRate how often by one client. The zero
	// value is no limit.
	Rate, ClientRate limit.Rate
	// AddPrefix goes before the path that is forwarded, after StripPrefix.
	AddPrefix string
	// EditRequest and EditResponse change the header of requests to the service and of its
	// responses.
	EditRequest, EditResponse Edits
	// HostHeader replaces the Host field for the service. UpstreamHost sends the host of the
	// upstream URL instead. With neither, the service gets the Host of the client.
	HostHeader   string
	UpstreamHost bool

	// CORS, if set, makes the gateway answer CORS requests of browsers. If nil, the service does.
	CORS *CORS

	// Computed by NewTable.
	Targets  []Target // of Upstreams
	allow    methods  // of Methods
	segments int      // in Path
	cors     *cors.Cors
}

// Resource is what clients are told of a route that is a protected resource of its own. The zero value
// leaves the route a part of the gateway's.
type Resource struct {
	ID       string // the resource identifier, which is a URL (RFC 9728 §1.2)
	Metadata string // the URL of its metadata (RFC 9728 §3.1)
}

// Replica is an instance of a service that was discovered, not looked up by name.
type Replica struct {
	// ID identifies the replica. State and connections are never shared between two ids, even if
	// the address is the same. Required.
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

// UpstreamKey identifies the upstream of t. Targets that differ only in their path share one.
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

// compile returns a checked copy of r that is ready for use, or all its errors.
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

// compileTargets computes the targets.
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

// Says reports whether r and other are equal as configuration.
func (r *Route) Says(other *Route) bool {
	a, b := *r, *other
	a.cors, b.cors = nil, nil // made of CORS
	return reflect.DeepEqual(a, b)
}

// whose returns the name of r and of its owner, for error texts.
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

// newTarget parses the URL of an upstream. A WebSocket needs HTTP/1.1, because net/http cannot send
// the handshake over HTTP/2 (RFC 8441).
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
