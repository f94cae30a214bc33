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

// unavailable responds with 503 for a store that cannot be asked, and leaves every other
// error as it is. A caller that went away is why the store was not asked, not what
// is wrong with it.
func unavailable(err error) error {
	away := errors.Is(err, clients.ErrUnavailable) || errors.Is(err, tokens.ErrUnavailable)
	if !away || errors.Is(err, context.Canceled) {
		return err
	}
	return problem.Unavailable("Redis cannot be asked at the moment; a change may have been made or not.", err)
}

// optionalTime is for members that are left out where there is no instant.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// checkQuery refuses parameters that are not known here or come twice.
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
