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

// The names of limits in the RateLimit fields: the limit of one client, for tokens or on one route,
// and the limit of a route for all clients.
const (
	rateLimitName  = `"client"`
	routeLimitName = `"route"`
)

// SetRateLimit sets the fields of draft-ietf-httpapi-ratelimit-headers-11, which tell a client how
// much of its rate is left. RateLimit-Policy is the rate: q requests in w seconds. RateLimit is the
// rest: r requests, and t seconds until the whole rate is available again. After a refusal, t is
// the time until one request is available, because the draft wants t to agree with Retry-After. For
// a decision without a rate, SetRateLimit sets nothing.
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

// tooMany reports whether err says that a limit was exceeded, and returns the response to the
// caller. The response is the same whether or not the client exists.
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
		return "Too many access tokens from this address were not valid, and this one is not valid either."
	default:
		return "Too many requests."
	}
}

// retrySeconds returns the value of Retry-After (RFC 9110 §10.2.3). A request after that time is
// not too early.
func retrySeconds(wait time.Duration) int64 { return max(seconds(wait), RetryAfter) }

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
