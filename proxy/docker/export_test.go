package docker

import (
	"context"
	"strconv"
	"time"

	"github.com/rs/zerolog"
)

// ConnectOnce makes each request of a watcher once, and returns the first error.
func ConnectOnce(ctx context.Context, host string) error {
	m, err := newMoby(host, time.Minute)
	if err != nil {
		return err
	}
	defer m.close()
	if _, err = m.containers(ctx); err != nil {
		return err
	}
	if _, err = m.networks(ctx); err != nil {
		return err
	}
	return m.events(ctx, func() {}, func(event) {})
}

// MarksAfterEvents returns how many marks a watcher keeps after n containers have ended.
func MarksAfterEvents(n int) int {
	w := New(Config{Host: "unix:///x", Log: zerolog.Nop()})
	for i := range n {
		w.note(event{action: "die", container: strconv.Itoa(i), enabled: true})
	}
	return len(w.out)
}
