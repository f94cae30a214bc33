// Package limit counts how often something happens and says when it is too
// often.
//
// All limits use the generic cell rate algorithm (GCRA; ITU-T I.371, the "leaky
// bucket as a meter"). Each key has one number, the theoretical arrival time: the
// instant at which everything that was let through so far would have come if it
// had come evenly, one event per interval. An event pushes it one interval ahead
// and is refused if it would then lie further ahead of now than the burst is
// worth. There are no windows whose ends let twice the rate through, nothing has
// to run in the background, and a refused event costs and changes nothing.
//
// [Rate] is a limit, [Rate.Take] the algorithm. [Keyed] is a limiter for any
// number of keys in memory of a fixed size; [Addresses] and [Failures] are made
// of it. Limits that all gateways share are in package redislimit.
package limit

import (
	"fmt"
	"time"
)

// Kind names what a limit counts, for metrics and errors.
type Kind string

// The kinds of limits.
const (
	ClientRate      Kind = "client_rate"         // token requests of a client
	RouteRate       Kind = "route_rate"          // requests of a route
	RouteClientRate Kind = "route_client_rate"   // requests of a client of a route
	FailedClient    Kind = "failed_auth_client"  // failed authentications for a client id
	FailedAddress   Kind = "failed_auth_address" // failed authentications from an address
	UnknownToken    Kind = "unknown_token"       // unknown, expired or revoked tokens from an address
)

// Observer is told of every decision. It is called by many goroutines at once
// and must not block.
type Observer func(kind Kind, allowed bool)

func (o Observer) tell(kind Kind, allowed bool) {
	if o != nil {
		o(kind, allowed)
	}
}

// Decision is what a limiter says about one event.
type Decision struct {
	// Rate is the limit that was applied; the zero value if there is none.
	Rate Rate
	// Allowed tells that the event is within the limit. Only then it was counted.
	Allowed bool
	// Remaining is how many more events would be allowed at once.
	Remaining int
	// Reset is the time until the whole of Rate.Count would be allowed at once.
	Reset time.Duration
	// RetryAfter is the time after which an event that was refused would be
	// allowed, if none comes before it. It is 0 for an event that is allowed.
	RetryAfter time.Duration
}

// Take decides about one event at now. arrival is the theoretical arrival time
// of the key, 0 for a key that is new; Take returns the one to keep. Both times
// count from any instant that the caller has chosen, by a clock that does not go
// back. The zero Rate allows everything.
func (r Rate) Take(arrival, now time.Duration) (time.Duration, Decision) {
	interval := r.Interval()
	burst := interval * time.Duration(r.Count)
	ahead := max(arrival-now, 0)
	if r.IsZero() {
		return arrival, Decision{Allowed: true}
	}
	if wait := ahead + interval - burst; wait > 0 {
		return arrival, Decision{Rate: r, Reset: ahead, RetryAfter: wait}
	}
	ahead += interval
	return now + ahead, Decision{Rate: r, Allowed: true, Remaining: int((burst - ahead) / interval), Reset: ahead}
}

// ExceededError says that a limit was exceeded.
type ExceededError struct {
	Kind     Kind
	Decision Decision
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("limit %s: more than %s; the next one is allowed in %s",
		e.Kind, e.Decision.Rate, e.Decision.RetryAfter.Round(time.Millisecond))
}
