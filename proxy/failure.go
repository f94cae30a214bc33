package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"snowgate/problem"
	"snowgate/proxy/http1"
)

// fail responds for a service that did not. Nothing of err is told to the caller: it names addresses.
// It may quote what the service sent.
func (t *roundTrip) fail(err error) {
	t.client.failing = true
	answer := t.describe(err)
	if t.exchange.Upgraded {
		t.exchange.Cause = answer // the connection is not ours to write to
		return
	}
	problem.Write(&t.client, t.in, answer)
	t.client.blame(t.client.FlushError()) // before a body that is still sent is waited for
}

// describe tells what to respond, and whose fault it was.
func (t *roundTrip) describe(err error) error {
	if reason := t.watch.cutBy(); reason != nil {
		return t.forwarder.refusal(reason)
	}
	var none *noReplicaError
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
	case errors.Is(given, errTooSlow), given == nil && isTimeout(err):
		return problem.New(http.StatusGatewayTimeout, "The service behind this route did not answer in time.", err)
	case given != nil:
		return problem.New(problem.StatusClientClosedRequest, "", err)
	case isDial(err):
		return problem.New(http.StatusBadGateway, "The service behind this route cannot be reached.", err)
	default:
		return problem.New(http.StatusBadGateway, "The service behind this route gave no valid answer.", err)
	}
}

// report tells the replica of the attempt how it did. status is that of its answer.
func (t *roundTrip) report(status int, err error) {
	a := &t.tries.current
	b := t.blameOf(status, err)
	if b == good && !a.probe && !a.replica.health.troubled.Load() { // nothing new, which spares the clock
		if !a.alone {
			a.replica.health.recent.passed(t.pool.fleet.period(a.at))
		}
		return
	}
	t.pool.judge(a.lease, b)
}

// blameOf returns what the attempt says about its replica. What its client can do comes
// first, but for a connection that was not made, in which clients have no part.
func (t *roundTrip) blameOf(status int, err error) blame {
	given := t.lifetime.givenUp()
	late := errors.Is(given, errTooSlow)
	switch {
	case err == nil && given == nil:
		switch status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return badStatus
		}
		return good
	case given != nil && !late, t.body.failure() != nil, errors.Is(err, http1.ErrRequest):
		return nobody
	case isDial(err):
		return unreachable
	case late, isTimeout(err):
		return tooSlow
	case t.tries.current.reused:
		return nobody
	case brokeOff(err):
		return reset
	default:
		return invalid
	}
}

// noReplica answers 503 with the time after which a replica may be fit again.
func noReplica(none *noReplicaError) error {
	answer := problem.Unavailable("No replica of the service behind this route is healthy.", none)
	seconds := int64((none.retryAfter + time.Second - 1) / time.Second)
	answer.Header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	return answer
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

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// brokeOff reports whether a connection ended, and nothing is wrong with what came on it.
func brokeOff(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
