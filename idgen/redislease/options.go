package redislease

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Options are the settings of a [Source]. The zero value of every field but
// Address stands for its default.
type Options struct {
	// Address identifies this gateway across restarts: whoever starts at an
	// address takes over the number that was leased there, without waiting for
	// the lease to end. So it must be something that two living gateways cannot
	// share, such as the IP address and port of the listener. (If they do, the
	// later one wins and the other takes another number; no id is repeated.)
	Address string

	// Owner is shown to people. Default: hostname:pid:start, the start in Unix
	// seconds.
	Owner string

	// Prefix is the hash tag that all keys begin with. Default "sg".
	Prefix string

	// TTL is how long a number stays reserved for a holder that is not heard
	// of. Default 60 s.
	TTL time.Duration

	// Lead is how far ahead of Redis time the ceiling is recorded: how long ids
	// can be issued while Redis is away, and how long after a crash the same
	// number cannot. It must be the same for all gateways, and more than twice
	// the time between extensions. Default 3 s.
	Lead time.Duration

	// Skew is by how much the clocks of any two Redis nodes may differ that
	// can come to keep the registry. The same for all gateways, less than Lead
	// by at least the time between extensions. Default 1 s.
	Skew time.Duration

	// Timeout bounds one round trip, if the client was made with
	// ContextTimeoutEnabled. Default 1 s.
	Timeout time.Duration

	// Rounds is how often Acquire asks while all numbers are taken. Default 10.
	Rounds int

	// SkipQuarantine gives out numbers of an empty registry at once. It is for a
	// store that lives and dies with this process. With any other store it gives
	// up the protection against a Redis that lost its data.
	SkipQuarantine bool

	// OnEvent is told what people should know. It must not block.
	OnEvent func(Event)
}

const (
	defaultLead = 3 * time.Second
	defaultSkew = time.Second

	minTime   = time.Millisecond
	tolerance = 5 * time.Second // longest difference of the id clock to Redis at acquisition
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

// validate reports all faults together.
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

// newNonce returns 130 random bits, which prove that a number is ours.
func newNonce() string { return rand.Text() }
