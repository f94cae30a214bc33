package middleware

import (
	"context"
	"net/http"
	"sync/atomic"
)

// Drainer counts the requests under way and knows whether the gateway is shutting down.
// [NewDrainer] makes one. It is safe for concurrent use.
//
// A shutdown loses no request in these steps: call Start; go on accepting for a while, so that
// clients learn of the shutdown by Connection: close on a whole response (RFC 9112 §9.6) and not by
// a closed connection; call [http.Server.Shutdown]; call Wait, because Shutdown does not wait for
// WebSockets.
type Drainer struct {
	draining atomic.Bool
	running  atomic.Int64
	idle     chan struct{}
}

// NewDrainer returns a Drainer that is not draining.
func NewDrainer() *Drainer {
	return &Drainer{idle: make(chan struct{}, 1)}
}

// Start has every response carry Connection: close from now on, also those to requests that are
// under way. It may be called more than once.
func (d *Drainer) Start() { d.draining.Store(true) }

// Draining reports whether Start was called.
func (d *Drainer) Draining() bool { return d.draining.Load() }

// Running returns the number of requests under way, WebSockets included.
func (d *Drainer) Running() int64 { return d.running.Load() }

// Wait returns nil when no request is under way, or the cause of the end of ctx. Only one goroutine
// may wait at a time.
func (d *Drainer) Wait(ctx context.Context) error {
	for d.running.Load() > 0 {
		select {
		case <-d.idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (d *Drainer) leave() {
	if d.running.Add(-1) > 0 {
		return
	}
	select {
	case d.idle <- struct{}{}:
	default: // one signal is enough: Wait checks again
	}
}

// Drain counts each request in d while it is served. If d is draining when the response begins,
// Drain adds Connection: close to it. Over HTTP/2, net/http turns that field into a GOAWAY.
func Drain(d *Drainer) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.running.Add(1)
			defer d.leave()
			parting := recorded(w)
			parting.drainer = d
			next.ServeHTTP(parting, r)
		})
	}
}
