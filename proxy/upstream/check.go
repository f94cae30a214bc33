package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/http1"
	"snowgate/proxy/route"
	"snowgate/proxy/transport"
)

// maxCheckBody is how many bytes of the response to a check are read.
const maxCheckBody = 32 << 10

// checker runs the active checks of one upstream until it is stopped.
type checker struct {
	route.HealthCheck
	upstream *upstream
	stopped  chan struct{}
}

// setCheck starts the checks that c describes, or stops them if c is nil. Equal checks go on.
// Replicas that are no longer checked count as healthy.
func (u *upstream) setCheck(c *route.HealthCheck) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.check != nil {
		if c != nil && u.check.HealthCheck == *c {
			return
		}
		close(u.check.stopped)
		u.check = nil
	}
	if c == nil {
		if list := u.list.Load(); list != nil {
			for _, r := range list.all {
				r.health.unchecked(u.env.Time())
			}
		}
		return
	}
	u.check = &checker{*c, u, make(chan struct{})}
	check := u.check // the loop of one check; it goes on after a panic
	u.env.tasks.start(func(ctx context.Context) { panics.Keep(ctx, panics.Health, check.run) }, nil)
}

// run checks all replicas at once and after each interval.
func (c *checker) run(ctx context.Context) {
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		c.round(ctx)
		select {
		case <-ticker.C:
		case <-c.stopped:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *checker) round(ctx context.Context) {
	replicas := c.upstream.current(c.upstream.env.Time())
	if len(replicas) == 0 {
		replicas, _ = c.upstream.Await(ctx) // without a replica there is nothing to check
	}
	var asking sync.WaitGroup
	for _, r := range replicas {
		asking.Go(func() {
			defer panics.Catch(panics.Health, func(err error) { c.note(r, err) })
			err := c.ask(ctx, r)
			if ctx.Err() == nil {
				c.note(r, err)
			}
		})
	}
	asking.Wait()
}

// note records a result unless the checks were stopped meanwhile, and tells of a change.
func (c *checker) note(r *Replica, err error) {
	if tell := c.upstream.env.Checked; c.takeOver(r, err) && tell != nil {
		tell(c.upstream.scheme+"://"+c.upstream.authority, r.address, err)
	}
}

// takeOver reports whether the result differs from the one before.
func (c *checker) takeOver(r *Replica, err error) bool {
	c.upstream.mu.Lock()
	defer c.upstream.mu.Unlock()
	return c.upstream.check == c && r.health.checked(c.upstream.env.Time(), err)
}

// ask checks one replica once.
func (c *checker) ask(ctx context.Context, r *Replica) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	asked := &transport.Destination{Scheme: c.upstream.scheme, Host: c.upstream.authority, Protocol: c.upstream.protocol}
	response, err := r.Transport.Probe(ctx, asked, &http1.Request{
		Method: http.MethodGet, Path: c.Path, Host: asked.Host, Header: []http1.Field{{Name: "User-Agent", Value: "snowgate-health"}},
	})
	if err != nil {
		return fmt.Errorf("GET %s: %w", c.Path, err)
	}
	defer response.Body.Close()
	if response.Status < 200 || response.Status > 299 {
		return fmt.Errorf("GET %s was answered with status %d", c.Path, response.Status)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxCheckBody) // so that the connection can be kept
	return nil
}

// checkInterval returns how long it takes at most until an unhealthy replica can be found healthy.
func (u *upstream) checkInterval() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.check == nil {
		return longestPause
	}
	return u.check.Interval
}
