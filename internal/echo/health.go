package echo

import (
	"net/http"
	"strconv"
	"sync/atomic"
)

// Health is the health check of an upstream for experiments. The zero value is healthy. It is safe
// for concurrent use.
type Health struct{ poor atomic.Bool }

// Set sets the health of the upstream.
func (h *Health) Set(healthy bool) { h.poor.Store(!healthy) }

// ServeHTTP implements [http.Handler]: 200 if the upstream is healthy, else 503.
func (h *Health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	status := http.StatusOK
	if h.poor.Load() {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"healthy": ` + strconv.FormatBool(status == http.StatusOK) + "}\n"))
}

// Drain lets an upstream end without losing a request: those that still arrive
// are answered, and each response tells the caller to use the connection no more
// (RFC 9112 §9.6). A connection that is closed right away may carry a request
// already. The zero value is ready. It is safe for concurrent use.
type Drain struct{ begun atomic.Bool }

// Wrap returns next with the hint on its responses, once the drain has begun.
func (d *Drain) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.begun.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Begin starts the drain.
func (d *Drain) Begin() { d.begun.Store(true) }
