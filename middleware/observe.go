package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"snowgate/internal/panics"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// Limits of a caller's text in an access line, in bytes.
const (
	maxLoggedTarget = 512
	maxLoggedAgent  = 256
	maxLoggedMethod = 32
	maxLoggedCause  = 1024
)

// Observation is the configuration of [Observe].
type Observation struct {
	// Log receives one line per request. The zero value logs nothing.
	Log zerolog.Logger
	// Later, if set, gets the fields of each access line, without the message, instead of Log. It
	// marshals fields at most once, and returns false if it writes no line. [logsink.Deferred.Add]
	// is one.
	Later func(level zerolog.Level, fields zerolog.LogObjectMarshaler) bool
	// TrustedProxies are the peers whose X-Request-Id is believed and whose forwarding headers may
	// be. Empty: nobody's.
	TrustedProxies []netip.Prefix
	// Record, if set, is told of every request when it has ended, by the goroutine that served it,
	// unless its exchange has a Counter, which is told instead. route is the template of
	// [exchange.Exchange], empty if none was found; method is any text that a caller chose; status
	// is that of the response or, for a response that was broken off, 499 (the caller went away),
	// 502 (the service failed), 401, 403 or 503 (its token ended, lost its scope, or can no longer
	// be checked) or 500.
	Record func(route, method string, status int, duration time.Duration)
}

// Observe makes the [exchange.Exchange] of each request, names the request in X-Request-Id, and
// when the request has ended writes one access line and tells Record. It must be the outermost
// middleware. It logs neither the query nor any credential. It logs a panic and passes it on.
func Observe(o Observation) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			v := newVisit()
			v.recorder.ResponseWriter = w
			x := &v.exchange
			c := exchange.ConnectionOf(r.Context())
			x.Peer = peerOf(c, r)
			x.PeerTrusted = isTrusted(o.TrustedProxies, x.Peer.Addr)
			x.Remote = remote(r, o.TrustedProxies, x.Peer.Addr, x.PeerTrusted)
			x.RequestID = requestID(r, x.PeerTrusted)
			w.Header()["X-Request-Id"] = []string{x.RequestID}

			v.request, v.start = r, start
			aborted := true
			defer func() {
				c.End(r)
				v.outcome, v.took = outcomeOf(x, &v.recorder, aborted), time.Since(start)
				o.finish(v)
			}()
			next.ServeHTTP(&v.recorder, c.Begin(r, x))
			aborted = false
		})
	}
}

// visit holds the values of one request in one allocation. Another request reuses it once the
// access line is written, if nothing else refers to it.
type visit struct {
	exchange exchange.Exchange
	recorder recorder

	request *http.Request
	start   time.Time
	outcome outcome       // set at the end
	took    time.Duration // set at the end
}

var visits sync.Pool

// newVisit returns a zero visit.
func newVisit() *visit {
	if v, ok := visits.Get().(*visit); ok {
		return v
	}
	return new(visit)
}

// release makes the memory of v available to another request, if nothing else refers to it.
func (v *visit) release() {
	if v.exchange.Unshared && !v.outcome.aborted {
		*v = visit{}
		visits.Put(v)
	}
}

// outcome is the result of a response.
type outcome struct {
	sent    int // status on the wire, 0 if none was sent
	counted int // status for the metrics
	bytes   int // of the body
	aborted bool
}

func outcomeOf(x *exchange.Exchange, w *recorder, aborted bool) outcome {
	end := outcome{sent: w.status, bytes: w.bytes, aborted: aborted}
	switch {
	case x.Upgraded:
		end.sent = http.StatusSwitchingProtocols
		end.counted, end.aborted = end.sent, false
	case aborted:
		end.counted = abortStatus(x.Cause)
	case end.sent == 0: // nothing written: net/http sends 200
		end.sent = http.StatusOK
		end.counted = end.sent
	default:
		end.counted = end.sent
	}
	return end
}

// abortStatus returns the status that is logged for a broken response: it says who caused the
// break.
func abortStatus(cause error) int {
	var known *problem.Error
	switch {
	case errors.As(cause, &known):
		return known.Status
	case cause == nil || errors.Is(cause, context.Canceled):
		return problem.StatusClientClosedRequest
	default:
		return http.StatusInternalServerError
	}
}

// finish calls Record and has the access line written. The caller must not use v afterwards.
func (o *Observation) finish(v *visit) {
	if counter := v.exchange.Counter; counter != nil {
		counter.Count(v.request.Method, v.outcome.counted, v.took)
	} else if o.Record != nil {
		o.Record(v.exchange.Route, v.request.Method, v.outcome.counted, v.took)
	}
	level := v.level()
	switch {
	case o.Later == nil:
		if e := o.Log.WithLevel(level); e.Enabled() {
			v.say(e)
			e.Msg("request")
		}
	case o.Later(level, v):
		return // the line releases v
	}
	v.release()
}

// level returns the level of the access line.
func (v *visit) level() zerolog.Level {
	switch {
	case v.exchange.Quiet:
		return zerolog.DebugLevel
	case v.outcome.counted >= http.StatusInternalServerError:
		return zerolog.ErrorLevel
	}
	return zerolog.InfoLevel
}

// MarshalZerologObject implements [zerolog.LogObjectMarshaler] for lines that are written later. It
// releases v.
func (v *visit) MarshalZerologObject(e *zerolog.Event) {
	v.say(e)
	e.Time(zerolog.TimestampFieldName, v.start.Add(v.took))
	v.release()
}

// Weight returns about how many bytes of the caller's text v keeps: the size of the request head.
func (v *visit) Weight() int {
	weight := len(v.request.RequestURI)
	for name, values := range v.request.Header {
		weight += len(name)
		for _, value := range values {
			weight += len(value)
		}
	}
	return weight
}

// say adds the fields of the access line to e, except the time.
func (v *visit) say(e *zerolog.Event) {
	r, x, end := v.request, &v.exchange, &v.outcome
	hide := secretsOf(r, !x.Token.IsZero())
	name := x.RequestID
	if x.PeerTrusted && isNamed(r) { // otherwise the gateway made the id
		name = hide.clean(name, maxRequestID)
	}
	e.Str("request_id", name).
		Str("method", hide.clean(r.Method, maxLoggedMethod)).
		Str("path", hide.clean(loggedPath(r, x), maxLoggedTarget)).
		Str("route", x.Route).
		Int("status", end.sent).
		Int("bytes", end.bytes).
		Float64("duration_ms", float64(v.took.Microseconds())/1000)
	optional(e, "remote", x.Peer.Text)
	if x.Remote != x.Peer.Addr {
		e.Str("forwarded_for", x.Remote.String())
	}
	optional(e, "client", hide.clean(x.Client, maxLoggedTarget))
	optional(e, "token_id", hide.clean(x.TokenID, maxLoggedTarget))
	optional(e, "upstream", x.Upstream)
	optional(e, "user_agent", hide.clean(r.UserAgent(), maxLoggedAgent))
	if end.aborted {
		e.Bool("aborted", true)
	}
	if x.Cause != nil {
		e.Str("cause", hide.clean(x.Cause.Error(), maxLoggedCause))
		var p *panics.Panic
		if errors.As(x.Cause, &p) && p.Stack != "" {
			e.Str("stack", hide.clean(p.Stack, maxStack))
		}
	}
}

func optional(e *zerolog.Event, key, value string) {
	if value != "" {
		e.Str(key, value)
	}
}

// loggedPath returns the canonical path. For a refused target it returns a part that may be logged,
// without query and userinfo.
func loggedPath(r *http.Request, x *exchange.Exchange) string {
	if x.Path.Raw != "" {
		return x.Path.Raw
	}
	target, _, _ := strings.Cut(r.RequestURI, "?")
	target, _, _ = strings.Cut(target, "#")
	// "@" ends userinfo only in an authority, but a refused target needs no finer distinction.
	if i := strings.LastIndexByte(target, '@'); i >= 0 {
		target = "…" + target[i:]
	}
	return target
}
