package config

import (
	"net/url"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"snowgate/internal/request/canonical"
)

// The ways in which a route chooses among the replicas of its service.
const (
	RoundRobin    = "round_robin"
	LeastInFlight = "least_in_flight"
)

// Defaults of a health check.
const (
	DefaultCheckInterval = 5 * time.Second
	DefaultCheckTimeout  = time.Second
)

// maxRequestsInFlight bounds max_in_flight.
const maxRequestsInFlight = 1_000_000

// HealthCheck says how the health of the replicas of a service is checked. The zero value is no
// check.
type HealthCheck struct {
	// Path is asked for with GET.
	Path string
	// Interval is the time between two checks, Timeout the longest wait for the response.
	Interval, Timeout time.Duration
}

// IsZero tells that nothing is checked.
func (c HealthCheck) IsZero() bool { return c == HealthCheck{} }

// checkedAt is a health check and its place in the file.
type checkedAt struct {
	HealthCheck
	node *yaml.Node
}

// Transports that send the requests of a route over HTTP/1.1 without TLS.
const (
	TransportDirect   = "direct"   // that of package proxy/http1
	TransportStandard = "standard" // that of net/http, which sends everything else anyway
)

func (r *routeReader) transport(n *yaml.Node) string {
	text, ok := r.text(n, "transport")
	if ok && text != TransportDirect && text != TransportStandard {
		r.fault(n, "transport %s is neither %s nor %s", quote(text), TransportDirect, TransportStandard)
	}
	return text
}

func (r *routeReader) balance(n *yaml.Node) string {
	text, ok := r.text(n, "balance")
	if !ok {
		return RoundRobin
	}
	if text != RoundRobin && text != LeastInFlight {
		r.fault(n, "balance %s is neither %s nor %s", quote(text), RoundRobin, LeastInFlight)
	}
	return text
}

func (r *routeReader) health(n *yaml.Node) HealthCheck {
	if n == nil {
		return HealthCheck{}
	}
	o := r.object(n, "a health check", "path", "interval", "timeout")
	return HealthCheck{
		Path:     r.checkPath(r.required(o, "path")),
		Interval: r.duration(o.keys["interval"], "interval", DefaultCheckInterval),
		Timeout:  r.duration(o.keys["timeout"], "timeout", DefaultCheckTimeout),
	}
}

func (r *routeReader) checkPath(n *yaml.Node) string {
	text, ok := r.text(n, "path")
	if !ok {
		return ""
	}
	if _, err := canonical.ParsePath(text); err != nil {
		r.fault(n, "path %s cannot be asked for: %v", quote(text), err)
	}
	return text
}

// checkedAlike refuses a second way to check the same upstream: it has one health
// for all routes.
func (r *routeReader) checkedAlike(n *yaml.Node, upstreams []url.URL, check HealthCheck) {
	if n == nil {
		return
	}
	for _, u := range upstreams {
		earlier, known := r.checks[u]
		if known && earlier.HealthCheck != check {
			r.fault(n, "the health of %s is checked in another way at %s", quote(u.String()), place(earlier.node))
			return
		}
		r.checks[u] = checkedAt{check, n}
	}
}

// count reads a number from 0 to most; nothing is 0.
func (d *decoder) count(n *yaml.Node, what string, most int) int {
	text, ok := d.text(n, what)
	if !ok {
		return 0
	}
	value, err := strconv.ParseUint(text, 10, 32)
	if err != nil || value > uint64(most) {
		d.fault(n, "%s is not a number from 0 to %d", quote(text), most)
		return 0
	}
	return int(value)
}
