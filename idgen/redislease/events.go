package redislease

import "fmt"

// EventKind is the kind of an [Event].
type EventKind string

// Kinds of events that a [Source] reports.
const (
	EventAcquired   EventKind = "acquired"   // a number was leased
	EventConflict   EventKind = "conflict"   // another gateway has the preferred octet; another number was leased
	EventPending    EventKind = "pending"    // waiting until the ceiling of the predecessor has passed
	EventQuarantine EventKind = "quarantine" // waiting because Redis is new or may have lost data
	EventFull       EventKind = "full"       // waiting because all numbers are taken
	EventReclaimed  EventKind = "reclaimed"  // Redis had lost the lease; the gateway continues
	EventLost       EventKind = "lost"       // another gateway has the number
	EventReleased   EventKind = "released"   // the number was given back
)

// Event is a change of a lease, for the log.
type Event struct {
	Kind   EventKind
	Worker int64  // the number as an index over all datacenters; -1 if there is none
	Text   string // a sentence
}

func (s *Source) tell(kind EventKind, worker int64, format string, args ...any) {
	s.options.OnEvent(Event{kind, worker, fmt.Sprintf(format, args...)})
}
