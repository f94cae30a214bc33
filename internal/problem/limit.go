package problem

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"snowgate/limit"
	"snowgate/tokens"
)

// The names of limits in the RateLimit fields: that of a client, for tokens or on
// one route, and that of a route for all.
const (
	rateLimitName  = `"client"`
	routeLimitName = `"route"`
)

// SetRateLimit tells a client how much of its rate is left, in the fields of
// draft-ietf-httpapi-ratelimit-headers-11: RateLimit-Policy is the rate itself
// (q requests in w seconds), RateLimit is what remains (r requests) and when that
// is the whole of it again (t seconds), or, after a refusal, when there is
// something again: the draft wants it to agree with Retry-After. A decision
// without a rate sets nothing.
func SetRateLimit(header http.Header, d limit.Decision) { setRateLimit(header, rateLimitName, d) }

func setRateLimit(header http.Header, name string, d limit.Decision) {
	if d.Rate.IsZero() {
		return
	}
	until := seconds(d.Reset)
	if !d.Allowed {
		until = retrySeconds(d.RetryAfter)
	}
	header.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d;w=%d", name, d.Rate.Count, seconds(d.Rate.Per)))
	header.Set("RateLimit", fmt.Sprintf("%s;r=%d;t=%d", name, d.Remaining, until))
}

// tooMany tells whether err says that a limit was exceeded, and then what the
// caller is told: the same for every caller, whether its client exists or not.
func tooMany(err error) (detail string, header http.Header, ok bool) {
	var exceeded *limit.ExceededError
	var unknown *tokens.LimitedError
	var wait time.Duration
	switch {
	case errors.As(err, &exceeded):
		detail, wait = tooManyDetail(exceeded.Kind), exceeded.Decision.RetryAfter
	case errors.As(err, &unknown):
		detail, wait = tooManyDetail(limit.UnknownToken), unknown.RetryAfter
	default:
		return "", nil, false
	}
	header = http.Header{"Retry-After": {strconv.FormatInt(retrySeconds(wait), 10)}}
	if exceeded != nil {
		switch exceeded.Kind {
		case limit.RouteClientRate:
			setRateLimit(header, rateLimitName, exceeded.Decision)
		case limit.RouteRate:
			setRateLimit(header, routeLimitName, exceeded.Decision)
		}
	}
	return detail, header, true
}

func tooManyDetail(kind limit.Kind) string {
	switch kind {
	case limit.ClientRate:
		return "The client has asked for more tokens than its rate allows."
	case limit.RouteClientRate:
		return "The client has used up its rate for this route."
	case limit.RouteRate:
		return "The rate of this route is used up."
	case limit.FailedClient, limit.FailedAddress:
		return "Too many authentications have failed."
	case limit.UnknownToken:
		return "Too many access tokens that are not valid came from this address; nor is this one."
	default:
		return "Too many requests."
	}
}

// retrySeconds is the value of Retry-After (RFC 9110 §10.2.3): never so early
// that the wait would be in vain.
func retrySeconds(wait time.Duration) int64 { return max(seconds(wait), RetryAfter) }

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
