package admin

import (
	"errors"
	"net/http"
	"time"

	"snowgate/handlers"
	"snowgate/internal/problem"
	"snowgate/tokens"
)

// keyDocument describes one tag key, without the key itself.
type keyDocument struct {
	// StartsAt is the time from which the key signs. The first key of a deployment has none.
	StartsAt *time.Time `json:"starts_at,omitempty"`
	// State is "next" before StartsAt, "current" while the key signs, and "old" afterwards. An old
	// key still verifies tokens that it signed.
	State string `json:"state"`
}

// listKeys lists the tag keys of this gateway, the oldest first.
func (a *API) listKeys(w http.ResponseWriter, _ *http.Request) error {
	return handlers.WriteJSON(w, http.StatusOK, struct {
		Keys []keyDocument `json:"keys"`
	}{keyDocuments(a.Keys.Starts(), a.Now())})
}

func keyDocuments(starts []time.Time, now time.Time) []keyDocument {
	list := make([]keyDocument, len(starts))
	for i, start := range starts {
		state := "current"
		switch {
		case start.After(now):
			state = "next"
		case i+1 < len(starts) && !starts[i+1].After(now):
			state = "old"
		}
		list[i] = keyDocument{StartsAt: optionalTime(start), State: state}
	}
	return list
}

// rotateKey starts a new tag key.
func (a *API) rotateKey(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action = "key.rotate"
	o, err := readOptional(w, r)
	if err != nil {
		return err
	}
	c.reason = o.reason()
	if err := o.check(); err != nil {
		return err
	}
	start, err := a.Keys.Rotate(r.Context())
	switch {
	case errors.Is(err, tokens.ErrKeyFixed):
		return problem.New(http.StatusConflict, "The tag key is given by SNOWGATE_TOKEN_KEY and is changed there.", err)
	case err != nil:
		return unavailable(err)
	}
	d := keyDocument{StartsAt: optionalTime(start), State: "next"}
	c.target, c.after = start.UTC().Format(time.RFC3339Nano), d
	return handlers.WriteJSON(w, http.StatusCreated, d)
}
