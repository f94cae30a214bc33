package handlers

import (
	"net/http"

	"snowgate/exchange"
)

// Readiness is what /readyz answers: whether the gateway can decide, and
// separately whether it can issue.
type Readiness struct {
	// Ready says that requests can be decided.
	Ready bool `json:"ready"`
	// Missing names what keeps the gateway from deciding.
	Missing []string `json:"missing,omitempty"`
	// Issuing tells about the generator of token ids.
	Issuing Issuing `json:"issuing"`
}

// Issuing tells whether tokens can be issued.
type Issuing struct {
	Ready   bool   `json:"ready"`
	Worker  *int64 `json:"worker,omitempty"` // the worker number held, if any
	Missing string `json:"missing,omitempty"`
}

// Health serves the two probes. It is safe for concurrent use.
type Health struct {
	// Readiness returns the state at this moment without waiting for anything.
	Readiness func() Readiness
}

// Live is /livez: the process can answer.
func (h *Health) Live(w http.ResponseWriter, r *http.Request) error {
	exchange.From(r.Context()).Quiet = true
	if err := checkRead(r); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return WriteJSON(w, http.StatusOK, struct {
		Live bool `json:"live"`
	}{true})
}

// Ready is /readyz: 200 when the gateway can decide, else 503.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) error {
	exchange.From(r.Context()).Quiet = true
	if err := checkRead(r); err != nil {
		return err
	}
	state := h.Readiness()
	status := http.StatusOK
	if !state.Ready {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Cache-Control", "no-store")
	return WriteJSON(w, status, state)
}
