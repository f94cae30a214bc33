package admin

import (
	"errors"
	"net/http"

	"github.com/rs/zerolog"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// change is what an audit line tells of one change. Its handler fills it on the
// way, so that a refused or failed attempt is told as far as it got.
type change struct {
	action string // for instance client.create
	target string // whom it concerns
	reason string // as the caller gave it
	// before and after are the documents, without secrets and digests; nil where
	// there is none.
	before, after any
}

// changeFunc is a handler that changes something.
type changeFunc func(w http.ResponseWriter, r *http.Request, c *change) error

// audited makes f write its audit line. The line is written before the response of
// a refusal and after the response of a success, and by no means left out.
func (a *API) audited(f changeFunc) problem.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		var c change
		failed := true
		var err error
		defer func() {
			if failed { // it panicked
				err = errors.New("panic")
			}
			a.audit(r, c, outcome(err))
		}()
		err = f(w, r, &c)
		failed = false
		return err
	}
}

// outcome is the word for how a change ended.
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
	// Log has no level, so that no level leaves the line out.
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
