package redislease

import (
	"sync"
	"time"
)

// State is a snapshot of a [Source], for health and metrics.
type State struct {
	Held      bool      // a number is held, as far as this gateway knows
	Worker    int64     // the number, as an index over all datacenters; -1 if none was held yet
	Address   string    // as in Options
	Owner     string    // as in Options
	Acquired  time.Time // when the number was leased
	Heartbeat time.Time // last success: acquisition or extension
	Ceiling   time.Time // latest recorded ceiling

	Quarantine time.Duration // time until Redis gives out numbers again; 0: it does
	Reclaims   int64         // how often Redis had lost the lease
	Losses     int64         // how often the number was lost or released
	Errors     int64         // failed operations
	LastError  error
}

// state is the current state and its lock.
type state struct {
	mu    sync.Mutex
	now   State
	until time.Time // end of the quarantine
}

// State returns the current state. It does no I/O and may be called concurrently.
func (s *Source) State() State {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	v := s.state.now
	v.Quarantine = max(0, time.Until(s.state.until))
	return v
}

func (s *state) init(o Options) {
	s.now = State{Worker: -1, Address: o.Address, Owner: o.Owner}
}

func (s *state) held(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.until = time.Time{}
	s.now.Held, s.now.Worker = true, l.number
	s.now.Acquired, s.now.Heartbeat, s.now.Ceiling = now, now, time.UnixMilli(l.ceiling)
}

func (s *state) beat(ceiling int64, reclaimed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Heartbeat, s.now.Ceiling = time.Now(), time.UnixMilli(ceiling)
	if reclaimed {
		s.now.Reclaims++
	}
}

func (s *state) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Held = false
	s.now.Losses++
}

func (s *state) quarantined(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(wait)
}

func (s *state) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Errors++
	s.now.LastError = err
}
