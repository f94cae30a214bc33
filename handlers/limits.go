package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"snowgate/clients"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/limit"
)

// failureLimiter limits failed authentications.
type failureLimiter interface {
	// Failed counts one failure, and returns an error if there were too many. client is the id that
	// the caller sent, or ""; it need not exist.
	Failed(client string, remote netip.Addr) error
}

// rateLimiter limits the token requests of each client.
type rateLimiter interface {
	Allow(ctx context.Context, client string, rate limit.Rate) limit.Decision
}

// refuse returns err, why the caller of r was not authenticated, or, after too many failures, the
// error that says so. It is called after the check of the secret, and for failures only: a client
// with a correct secret is never limited, whatever others do in its name. It uses only what the
// caller sent, so an unknown client gets the same response as a wrong secret.
func (h *OAuth) refuse(r *http.Request, id string, err error) error {
	if h.Failures == nil || !errors.Is(err, clients.ErrUnauthenticated) {
		return err
	}
	if limited := h.Failures.Failed(id, exchange.From(r.Context()).Remote); limited != nil {
		return limited
	}
	if clients.ValidID(id) {
		return fmt.Errorf("%w: client %s", err, id) // for the log
	}
	return err
}

// spend counts one token request of client, sets the RateLimit fields of the response, and returns
// an error if the rate is used up.
func (h *OAuth) spend(w http.ResponseWriter, r *http.Request, client *clients.Client) error {
	if h.Rates == nil || client.Rate.IsZero() {
		return nil
	}
	decision := h.Rates.Allow(r.Context(), client.ID, client.Rate)
	problem.SetRateLimit(w.Header(), decision)
	if !decision.Allowed {
		return &limit.ExceededError{Kind: limit.ClientRate, Decision: decision}
	}
	return nil
}
