package redisclients

import (
	"fmt"

	"snowgate/clients"
)

// Error is a failure of the store. It matches [clients.ErrUnavailable] and its
// cause with errors.Is, and never contains a password.
type Error struct {
	Op  string // what was attempted
	Err error  // the cause
}

func failure(op string, err error) error { return &Error{op, err} }

func (e *Error) Error() string { return fmt.Sprintf("redisclients: cannot %s: %v", e.Op, e.Err) }

// Unwrap returns [clients.ErrUnavailable] and the cause.
func (e *Error) Unwrap() []error { return []error{clients.ErrUnavailable, e.Err} }

// DamagedError is reported for a client whose document in Redis cannot be decoded, because a later
// version or a person wrote it. The gateway keeps using the last document that it could decode, if
// any.
type DamagedError struct {
	Client string
	Err    error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("redisclients: the document of the client %s cannot be read: %v", e.Client, e.Err)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Err }

// NewerError is reported for a document with members that only a newer version knows. The gateway
// ignores them, and keeps them when the client is changed.
type NewerError struct {
	Client  string
	Members string // of a JSON object, without the braces
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("redisclients: a newer version wrote the client %s with more than this one knows, which is ignored: %.200s; upgrade this gateway", e.Client, e.Members)
}

// LostError reports that Redis had lost changes of clients, and that this gateway has written them
// back.
type LostError struct{ Restored int }

func (e *LostError) Error() string {
	return fmt.Sprintf("redisclients: Redis had forgotten changes of %d clients; they are given back", e.Restored)
}
