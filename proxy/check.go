package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/http1"
	"snowgate/request/canonical"
)

// Defaults of a [HealthCheck].
const (
	DefaultCheckInterval = 5 * time.Second
	DefaultCheckTimeout  = time.Second
)

// HealthCheck has the replicas of a service asked for how they do. One that does
// not answer GET with 200 to 299 gets no request until it does.
type HealthCheck struct {
	// Path is asked for, without what an upstream's URL has of a path. Required.
	Path string
	// Interval is the time from one question to the next. 0: [DefaultCheckInterval].
	Interval time.Duration
	// Timeout bounds the wait for the answer. 0: [DefaultCheckTimeout].
	Timeout time.Duration
}

func (c HealthCheck) withDefaults() HealthCheck {
	c.Interval = cmp.Or(c.Interval, DefaultCheckInterval)
	c.Timeout = cmp.Or(c.Timeout, DefaultCheckTimeout)
	return c
}

func (c HealthCheck) valid() error {
	if _, err := canonical.ParsePath(c.Path); err != nil {
		return fmt.Errorf("health check path %q: %w", c.Path, err)
	}
	if c.Interval < 0 || c.Timeout < 0 {
		return errors.New("interval and timeout of a health check cannot be negative")
	}
	return nil
}

// checker runs the checks of one upstream until it is stopped.
type checker struct {
	HealthCheck
	upstream *upstream
	stopped  chan struct{}
}

// setCheck has u checked as c says, or not at all if it is nil. A check that is
// the same goes on. Who is not checked any more is given the benefit of the doubt.
func (u *upstream) setCheck(c *HealthCheck) {
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
				r.health.unchecked(u.fleet.time())
			}
		}
		return
	}
	u.check = &checker{*c, u, make(chan struct{})}
	check := u.check // the loop of one check; it goes on after a panic
	u.fleet.start(func(ctx context.Context) { panics.Keep(ctx, panics.Health, check.run) }, nil)
}

// run checks all replicas at once, and again after each interval.
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
	replicas := c.upstream.current(c.upstream.fleet.time())
	if len(replicas) == 0 {
		replicas, _ = c.upstream.await(ctx) // without a replica there is nobody to ask
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

// note takes over a result, unless the check was stopped meanwhile.
func (c *checker) note(r *replica, err error) {
	c.upstream.mu.Lock()
	defer c.upstream.mu.Unlock()
	if c.upstream.check == c {
		r.health.checked(c.upstream.fleet.time(), err)
	}
}

// ask asks one replica how it does.
func (c *checker) ask(ctx context.Context, r *replica) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	asked := &target{scheme: c.upstream.scheme, host: c.upstream.authority, protocol: c.upstream.protocol}
	answer, err := r.transport.probe(ctx, asked, &http1.Request{
		Method: http.MethodGet, Path: c.Path, Host: asked.host, Header: []http1.Field{{Name: "User-Agent", Value: "snowgate-health"}},
	})
	if err != nil {
		return fmt.Errorf("GET %s: %w", c.Path, err)
	}
	defer answer.body.Close()
	if answer.status < 200 || answer.status > 299 {
		return fmt.Errorf("GET %s was answered with status %d", c.Path, answer.status)
	}
	_, _ = io.CopyN(io.Discard, answer.body, copyBuffer) // so that the connection can be kept
	return nil
}

// checkInterval returns how long it takes until a replica that is not fit may be
// found to be.
func (u *upstream) checkInterval() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.check == nil {
		return longestPause
	}
	return u.check.Interval
}
