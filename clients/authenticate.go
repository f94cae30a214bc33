package clients

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"
)

// Authenticate returns the client with that id if secret is one of its secrets, the secret is valid at
// now, and the client is not disabled.
//
// Otherwise the error is [ErrUnauthenticated], with the same text and after the same work: one hash,
// and a number of comparisons that depends on neither id nor secret. A text without the format of a
// client secret (see [CheckSecret]) never authenticates, even if its digest is registered.
//
// The local copy of the registry may be stale (see [Registry.Follow]). Until it is fresh, the error for
// every client that is not in the configuration file is [ErrUnavailable], after the same work: the
// client may have been created, changed or disabled meanwhile.
//
// Authenticate records the time of use of the secret. It does not allocate for a secret of the usual
// length.
func (r *Registry) Authenticate(id, secret string, now time.Time) (*Client, error) {
	s := r.current.Load()
	e := s.get(id)
	known := e != nil
	if !known {
		e = &nobody
	}
	wellFormed := secretFlaw(secret) == ""
	hit, _ := match(e.client.Secrets, Digest(secret), s.slots(), now)
	switch {
	case s.configured[id] == nil && !r.certain(s):
		return nil, ErrUnavailable
	case hit >= 0 && known && wellFormed && !e.client.Disabled:
		e.uses[hit].at(now)
		return &e.client, nil
	default:
		return nil, ErrUnauthenticated
	}
}

// certain reports whether s is a fresh copy of the registry.
func (r *Registry) certain(s *snapshot) bool {
	return r.following == nil || s.loaded && r.following.confirmed()
}

// nobody stands in for an unknown client, so that Authenticate does the same work for it.
var nobody entry

// match compares digest with every secret, and with dummies up to slots. It returns the index of
// the last valid secret that is equal, or -1, and the number of comparisons. It never stops early,
// neither after a match nor at an expired secret.
func match(secrets []Secret, digest [sha256.Size]byte, slots int, now time.Time) (hit, comparisons int) {
	hit = -1
	var dummy Secret
	for i := range slots {
		candidate, live := &dummy, 0
		if i < len(secrets) {
			candidate = &secrets[i]
			if candidate.Live(now) {
				live = 1
			}
		}
		equal := live & subtle.ConstantTimeCompare(candidate.SHA256[:], digest[:])
		hit = subtle.ConstantTimeSelect(equal, i, hit)
		comparisons++
	}
	return hit, comparisons
}
