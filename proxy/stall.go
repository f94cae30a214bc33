package proxy

import (
	"io"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// stallTime is how long a WebSocket goes on while somebody is waited for and nothing moves.
const stallTime = 60 * time.Second

// stall ends a WebSocket that hangs: the service takes nothing of what the client has sent, or one
// side has ended and the other neither sends nor ends. While both are silent, nobody is waited for. It
// is safe for concurrent use.
type stall struct {
	end func() // ends the WebSocket

	mu     sync.Mutex // guards what follows
	timer  *time.Timer
	armed  bool
	moved  time.Time // when something was written last
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

// arm has check called when nothing moves from now on.
func (s *stall) arm(now time.Time) {
	s.moved = now
	if !s.armed && !s.over {
		s.armed = true
		s.timer.Reset(stallTime)
	}
}

// check ends the WebSocket if it hangs.
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
		s.arm(s.moved)
	}
}

// sideEnded notes that one side has ended well.
func (s *stall) sideEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.half = true
	s.arm(time.Now())
}

// stop ends the watch.
func (s *stall) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.timer.Stop()
}

// stallWriter tells a stall of what it writes.
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
