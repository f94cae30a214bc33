package redislease

import "fmt"

// EventKind says what an [Event] is about.
type EventKind string

// Kinds of events that a [Source] reports.
const (
	EventAcquired   EventKind = "acquired"   // a number was leased
	EventConflict   EventKind = "conflict"   // the preferred octet is somebody else's; another number was leased
	EventPending    EventKind = "pending"    // ours, but the predecessor's ceiling has yet to pass
	EventQuarantine EventKind = "quarantine" // Redis is new or may have forgotten; waiting
	EventFull       EventKind = "full"       // all numbers are taken; waiting
	EventReclaimed  EventKind = "reclaimed"  // Redis had forgotten us; we went on
	EventLost       EventKind = "lost"       // somebody else has the number
	EventReleased   EventKind = "released"   // the number was given back
)

// Event is something that happened to a lease, for the log.
type Event struct {
	Kind   EventKind
	Worker int64  // the number as an index over all datacenters; -1 if there is none
	Text   string // a sentence for people
}

func (s *Source) tell(kind EventKind, worker int64, format string, args ...any) {
	s.options.OnEvent(Event{kind, worker, fmt.Sprintf(format, args...)})
}
