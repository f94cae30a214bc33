package route

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"snowgate/internal/request/canonical"
)

// Defaults of a [HealthCheck].
const (
	DefaultCheckInterval = 5 * time.Second
	DefaultCheckTimeout  = time.Second
)

// HealthCheck is the active health check of the replicas of a service. A replica that does not
// answer GET with 200 to 299 gets no request until it does.
type HealthCheck struct {
	// Path is asked for, without what an upstream's URL has of a path. Required.
	Path string
	// Interval is the time from one check to the next. 0: [DefaultCheckInterval].
	Interval time.Duration
	// Timeout bounds the wait for the response. 0: [DefaultCheckTimeout].
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
