package handlers

import (
	"net/http"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// Readiness is what /readyz answers: whether the gateway should be sent
// requests, whether it can decide, and whether it can issue.
type Readiness struct {
	// Ready says that the gateway should be sent requests: it can decide, and
	// could issue tokens at least once.
	Ready bool `json:"ready"`
	// Missing lists the reasons why the gateway is not ready.
	Missing []string `json:"missing,omitempty"`
	// Deciding says whether the gateway can check tokens.
	Deciding Deciding `json:"deciding"`
	// Issuing says whether the gateway can make token ids.
	Issuing Issuing `json:"issuing"`
}

// Deciding tells whether requests with tokens can be decided.
type Deciding struct {
	Ready   bool     `json:"ready"`
	Missing []string `json:"missing,omitempty"`
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

// Ready is /readyz: 200 when the gateway should be sent requests, else 503.
// With ?for=decide or ?for=issue it answers for one kind of request only: 200
// when the gateway can do that now.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) error {
	exchange.From(r.Context()).Quiet = true
	if err := checkRead(r); err != nil {
		return err
	}
	state := h.Readiness()
	ready := state.Ready
	switch what := r.URL.Query().Get("for"); what {
	case "":
	case "decide":
		ready = state.Deciding.Ready
	case "issue":
		ready = state.Issuing.Ready
	default:
		return problem.New(http.StatusBadRequest, "the parameter for is decide or issue", nil)
	}
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Cache-Control", "no-store")
	return WriteJSON(w, status, state)
}
