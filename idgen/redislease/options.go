package redislease

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Options configures a [Source]. Every field but Address has a default for its zero value.
type Options struct {
	// Address identifies this gateway across restarts. A gateway takes over a number that is leased
	// at its address, without waiting for the end of the lease. So two running gateways must not
	// have the same address. Use, for instance, the IP address and port of the listener. (If two
	// gateways do have the same address, the later one gets the number, and the other one takes
	// another number; no id is repeated.)
	Address string

	// Owner is shown in messages. Default: hostname:pid:start, the start in Unix seconds.
	Owner string

	// Prefix is the hash tag of all keys. Default: "sg".
	Prefix string

	// TTL is how long a number stays reserved for a holder that does not renew its lease. Default:
	// 60 s.
	TTL time.Duration

	// Lead is how far ahead of Redis time the ceiling is recorded. It limits how long a gateway can
	// issue ids while Redis is unavailable, and for how long after a crash its number cannot be
	// used. It must be the same for all gateways, and more than twice the time between extensions.
	// Default: 3 s.
	Lead time.Duration

	// Skew is the maximum difference between the clocks of any two Redis nodes that may keep the
	// registry. It must be the same for all gateways, and less than Lead by at least the time
	// between extensions. Default: 1 s.
	Skew time.Duration

	// Timeout limits one round trip, if the client was made with ContextTimeoutEnabled. Default: 1
	// s.
	Timeout time.Duration

	// Rounds is the maximum number of tries of Acquire while all numbers are taken. Default: 10.
	Rounds int

	// SkipQuarantine makes an empty registry give out numbers at once. It is for a store that
	// exists only as long as this process. With any other store, it removes the protection after a
	// loss of data in Redis.
	SkipQuarantine bool

	// OnEvent is called with events that an operator should see. It must not block.
	OnEvent func(Event)
}

const (
	defaultLead = 3 * time.Second
	defaultSkew = time.Second

	minTime   = time.Millisecond
	tolerance = 5 * time.Second // maximum difference between the id clock and Redis at acquisition
	slack     = time.Second     // by how much Redis may be ahead of the id clock before ceilings stop following it
)

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.TTL, time.Minute)
	def(&o.Lead, defaultLead)
	def(&o.Skew, defaultSkew)
	def(&o.Timeout, time.Second)
	if o.Rounds == 0 {
		o.Rounds = 10
	}
	if o.Prefix == "" {
		o.Prefix = "sg"
	}
	if o.Owner == "" {
		o.Owner = defaultOwner()
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	return o
}

// validate returns all faults in one error.
func (o Options) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("redislease: "+format, args...))
		}
	}
	check(o.Address != "" && !strings.ContainsAny(o.Address, " \t\r\n"), "address %q is empty or has spaces", o.Address)
	check(!strings.ContainsAny(o.Prefix, "{}"), "prefix %q has braces", o.Prefix)
	check(!strings.ContainsAny(o.Owner, "\r\n"), "owner %q has a line break", o.Owner)
	check(min(o.TTL, o.Lead, o.Skew, o.Timeout) >= minTime, "TTL, Lead, Skew and Timeout must be at least %v", minTime)
	check(o.Skew < o.Lead, "Skew %v must be less than Lead %v", o.Skew, o.Lead)
	check(o.Lead < o.TTL, "Lead %v must be less than TTL %v", o.Lead, o.TTL)
	check(o.Rounds > 0, "Rounds %d is negative", o.Rounds)
	return errors.Join(faults...)
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d:%d", host, os.Getpid(), time.Now().Unix())
}

// newNonce returns 130 random bits. A gateway proves with them that a number is its own.
func newNonce() string { return rand.Text() }
