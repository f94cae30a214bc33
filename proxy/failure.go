package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"snowgate/internal/problem"
	"snowgate/proxy/http1"
	"snowgate/proxy/transport"
	"snowgate/proxy/upstream"
)

// fail responds in place of a service that did not. The caller learns nothing of err, which names
// addresses and may quote the service.
func (t *roundTrip) fail(err error) {
	t.client.failing = true
	response := t.describe(err)
	if t.exchange.Upgraded {
		t.exchange.Cause = response // the connection is not ours to write to
		return
	}
	problem.Write(&t.client, t.in, response)
	t.client.blame(t.client.FlushError()) // before a body that is still sent is waited for
}

// describe returns the response to an error, and the outcome for the replica.
func (t *roundTrip) describe(err error) error {
	if reason := t.watch.cutBy(); reason != nil {
		return t.common.refusal(reason, t.policy)
	}
	var none *upstream.NoReplicaError
	given := t.lifetime.givenUp()
	if given != nil {
		t.body.settle(given)
	}
	switch fault := t.body.failure(); {
	case fault != nil:
		return describeBody(fault)
	case errors.As(err, &none):
		return noReplica(none)
	case errors.Is(err, http1.ErrRequest):
		return problem.New(http.StatusBadRequest, "The request cannot be forwarded.", err)
	case errors.Is(given, errTooSlow), given == nil && transport.IsTimeout(err):
		return problem.New(http.StatusGatewayTimeout, "The service behind this route did not answer in time.", err)
	case given != nil:
		return problem.New(problem.StatusClientClosedRequest, "", err)
	case transport.IsDial(err):
		return problem.New(http.StatusBadGateway, "The service behind this route cannot be reached.", err)
	default:
		return problem.New(http.StatusBadGateway, "The service behind this route gave no valid response.", err)
	}
}

// report reports the outcome of the attempt to its replica. status is that of the response.
func (t *roundTrip) report(status int, err error) {
	t.balancer.Report(t.tries.chosen, t.outcomeOf(status, err))
}

// outcomeOf returns what the attempt says about its replica. Causes on the client's side come
// first, except for a connection that was not made, in which clients have no part.
func (t *roundTrip) outcomeOf(status int, err error) upstream.Outcome {
	given := t.lifetime.givenUp()
	late := errors.Is(given, errTooSlow)
	switch {
	case err == nil && given == nil:
		switch status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return upstream.BadStatus
		}
		return upstream.Success
	case given != nil && !late, t.body.failure() != nil, errors.Is(err, http1.ErrRequest):
		return upstream.Unrelated
	case transport.IsDial(err):
		return upstream.Unreachable
	case late, transport.IsTimeout(err):
		return upstream.TooSlow
	case t.tries.current.Reused && !t.tries.current.Heard: // the service may have closed it just then
		return upstream.Unrelated
	case transport.IsBroken(err):
		return upstream.Reset
	default:
		return upstream.Invalid
	}
}

// noReplica responds with 503 with the time after which a replica may be fit again.
func noReplica(none *upstream.NoReplicaError) error {
	response := problem.Unavailable("No replica of the service behind this route is healthy.", none)
	seconds := int64((none.RetryAfter + time.Second - 1) / time.Second)
	response.Header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	return response
}

// describeBody tells what to answer to a client whose body failed.
func describeBody(fault error) error {
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(fault, &tooLarge):
		return fault // problem knows it
	case errors.Is(fault, os.ErrDeadlineExceeded):
		return problem.New(http.StatusRequestTimeout, "The request body did not arrive in time.", fault)
	case errors.Is(fault, io.ErrUnexpectedEOF), errors.As(fault, &network):
		return problem.New(problem.StatusClientClosedRequest, "", fault)
	default:
		return problem.New(http.StatusBadRequest, "The request body is malformed.", fault)
	}
}
