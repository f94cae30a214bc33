package proxy

import (
	"io"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// stallTime is how long a WebSocket goes on while one side waits and nothing moves in either direction.
const stallTime = 60 * time.Second

// stall ends a WebSocket in which nothing has moved in either direction for [stallTime] although one
// side waits: a write to the service is blocked, or one side has ended and the other has not. A
// WebSocket in which both sides are silent goes on. stall is safe for concurrent use.
type stall struct {
	end func() // ends the WebSocket

	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	armed  bool
	moved  time.Time // when something was written last, or a side ended
	taking bool      // a write to the service is under way
	half   bool      // one side has ended
	over   bool
}

func newStall(end func()) *stall {
	s := &stall{end: end}
	s.timer = time.AfterFunc(time.Hour, func() { defer panics.Catch(panics.Tunnel, nil); s.check() }) // set by arm
	s.timer.Stop()
	return s
}

// arm has check called after stallTime, unless it will be called before. The caller holds mu.
func (s *stall) arm() {
	if !s.armed && !s.over {
		s.armed = true
		s.timer.Reset(stallTime)
	}
}

// check ends the WebSocket if nothing has moved for stallTime, and else comes again.
func (s *stall) check() {
	s.mu.Lock()
	s.armed = false
	waits := (s.taking || s.half) && !s.over
	left := time.Until(s.moved.Add(stallTime))
	if waits && left > 0 {
		s.armed = true
		s.timer.Reset(left)
	}
	s.mu.Unlock()
	if waits && left <= 0 {
		s.end()
	}
}

// write notes that a write begins or has ended.
func (s *stall) write(toService, underWay bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = time.Now()
	if toService {
		s.taking = underWay
	}
	if s.taking {
		s.arm()
	}
}

// sideEnded notes that one side has ended well.
func (s *stall) sideEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.half, s.moved = true, time.Now()
	s.arm()
}

// stop ends the watch.
func (s *stall) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.timer.Stop()
}

// stallWriter reports each write to a stall.
type stallWriter struct {
	io.Writer
	stall     *stall
	toService bool
}

// Write implements [io.Writer].
func (w stallWriter) Write(p []byte) (int, error) {
	w.stall.write(w.toService, true)
	defer w.stall.write(w.toService, false)
	return w.Writer.Write(p)
}
