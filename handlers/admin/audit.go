package admin

import (
	"errors"
	"net/http"

	"github.com/rs/zerolog"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// change holds the content of an audit line. The handler fills it step by step, so the line of a
// refused or failed attempt shows how far it got.
type change struct {
	action string // such as client.create
	target string // the id of the changed object
	reason string // as the caller gave it
	// before and after are the documents, without secrets and digests; nil if there is none.
	before, after any
}

// changeFunc is a handler that makes a change.
type changeFunc func(w http.ResponseWriter, r *http.Request, c *change) error

// audited makes f write its audit line. It writes the line before the response to a refused
// request, and after the response to a successful one. It writes the line even if f panics.
func (a *API) audited(f changeFunc) problem.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		var c change
		failed := true
		var err error
		defer func() {
			if failed { // f panicked
				err = errors.New("panic")
			}
			a.audit(r, c, outcome(err))
		}()
		err = f(w, r, &c)
		failed = false
		return err
	}
}

// outcome returns the outcome of a change for the audit line.
func outcome(err error) string {
	var known *problem.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &known) && known.Status < http.StatusInternalServerError:
		return "refused"
	default:
		return "failed"
	}
}

func (a *API) audit(r *http.Request, c change, outcome string) {
	x := exchange.From(r.Context())
	// Log sets no level, so that no configured level drops the line.
	line := a.Log.Log().Str(zerolog.LevelFieldName, zerolog.InfoLevel.String()).
		Str("actor", x.Client).
		Str("actor_token_id", x.TokenID).
		Str("action", c.action).
		Str("outcome", outcome)
	optional(line, "target", c.target)
	optional(line, "reason", c.reason)
	if c.before != nil {
		line.Interface("before", c.before)
	}
	if c.after != nil {
		line.Interface("after", c.after)
	}
	line.Str("request_id", x.RequestID).Msg("audit")
}

func optional(line *zerolog.Event, key, value string) {
	if value != "" {
		line.Str(key, value)
	}
}
