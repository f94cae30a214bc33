package handlers

import (
	"net/http"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// Readiness is the response of /readyz: whether the gateway should get requests, whether it can
// check tokens, and whether it can issue them.
type Readiness struct {
	// Ready says whether the gateway should get requests: it can check tokens now, and could issue
	// tokens at least once.
	Ready bool `json:"ready"`
	// Missing lists the reasons why the gateway is not ready.
	Missing []string `json:"missing,omitempty"`
	// Deciding says whether the gateway can check tokens.
	Deciding Deciding `json:"deciding"`
	// Issuing says whether the gateway can make token ids.
	Issuing Issuing `json:"issuing"`
	// Remarks name settings of Redis that an operator should change. They do not concern readiness.
	Remarks []string `json:"remarks,omitempty"`
}

// Deciding says whether the gateway can decide requests with tokens.
type Deciding struct {
	Ready   bool     `json:"ready"`
	Missing []string `json:"missing,omitempty"`
}

// Issuing says whether the gateway can issue tokens.
type Issuing struct {
	Ready   bool   `json:"ready"`
	Worker  *int64 `json:"worker,omitempty"` // the worker number held, if any
	Missing string `json:"missing,omitempty"`
}

// Health serves the two probes. It is safe for concurrent use.
type Health struct {
	// Readiness returns the current state. It must not block.
	Readiness func() Readiness
}

// Live is /livez. It responds as long as the process can.
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

// Ready is /readyz. It responds with 200 if the gateway should get requests, and with 503
// otherwise. With ?for=decide or ?for=issue, it responds with 200 if the gateway can check tokens,
// or issue them, now.
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
		return problem.New(http.StatusBadRequest, "The parameter \"for\" must be \"decide\" or \"issue\".", nil)
	}
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Cache-Control", "no-store")
	return WriteJSON(w, status, state)
}
