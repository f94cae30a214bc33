package proxy

import (
	"errors"
	"sync"
	"time"

	"snowgate/internal/cohort"
	"snowgate/internal/problem"
	"snowgate/proxy/route"
)

// forwarding holds what all round trips of a [Forwarder] share. It is safe for concurrent use.
type forwarding struct {
	clientIdle time.Duration
	watch      Watch
	challenge  problem.Challenge
	buffers    *buffers
	timers     *exchangeTimers
	roundTrips sync.Pool     // that nobody knows of any more
	asking     cohort.Cohort // who is about to write to a service
	answering  cohort.Cohort // who is about to write to a client
}

// refusal returns the response to a request whose token is not valid any more for the reason given,
// if nothing of another response was sent yet, and what is logged.
func (f *forwarding) refusal(reason error, policy *route.Policy) error {
	response := challengeOf(f.challenge, policy).Refused(reason)
	if _, known := errors.AsType[*problem.Error](response); known {
		return response
	}
	return problem.Unavailable("The access token cannot be checked at the moment.", response)
}
