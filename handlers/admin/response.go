package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"snowgate/clients"
	"snowgate/internal/problem"
	"snowgate/tokens"
)

// unavailable responds with 503 if the store could not be reached, and returns all other errors
// unchanged. If the caller went away, the store is not to blame.
func unavailable(err error) error {
	away := errors.Is(err, clients.ErrUnavailable) || errors.Is(err, tokens.ErrUnavailable)
	if !away || errors.Is(err, context.Canceled) {
		return err
	}
	return problem.Unavailable("Redis cannot be asked at the moment; a change may have been made or not.", err)
}

// optionalTime returns nil for the zero time, so that JSON leaves the member out.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// checkQuery refuses unknown parameters and parameters that come twice.
func checkQuery(r *http.Request, known ...string) error {
	for name, values := range r.URL.Query() {
		if !slices.Contains(known, name) {
			return problem.New(http.StatusBadRequest, "The query has a parameter that is unknown here.", nil)
		}
		if len(values) > 1 {
			return problem.New(http.StatusBadRequest, "The query has a parameter twice.", nil)
		}
	}
	return nil
}
