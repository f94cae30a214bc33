package clients

import (
	"sync/atomic"
	"time"
)

// use is when one secret was last used, in Unix seconds; 0: never. All snapshots with the secret
// share it, so a change of the client loses no use.
type use struct {
	last    atomic.Int64
	drained atomic.Int64 // the last value that Used has returned
}

// at records a use. A busy client causes one write a second.
func (u *use) at(now time.Time) { raise(&u.last, now.Unix()) }

func raise(cell *atomic.Int64, to int64) {
	for known := cell.Load(); known < to; known = cell.Load() {
		if cell.CompareAndSwap(known, to) {
			return
		}
	}
}

// entry returns the entry of a client. before is the entry that it replaces, or nil; the uses of
// secrets in both are shared.
func (r *Registry) entry(c Client, before *entry) *entry {
	c.DefaultTTL = r.defaultTTL
	e := &entry{client: c, uses: make([]*use, len(c.Secrets))}
	for i, s := range c.Secrets {
		if e.uses[i] = before.use(s); e.uses[i] == nil {
			e.uses[i] = new(use)
		}
	}
	return e
}

// use returns the use of a secret; nil if e is nil or does not have the secret.
func (e *entry) use(s Secret) *use {
	if e == nil {
		return nil
	}
	for i, have := range e.client.Secrets {
		if have.ID == s.ID && have.SHA256 == s.SHA256 {
			return e.uses[i]
		}
	}
	return nil
}

// Used returns the last use of every secret that was used since the last call. The caller passes
// the result to [Store.Touch], about once a minute, or to [Registry.Unused] if that fails.
func (r *Registry) Used() []Use {
	var list []Use
	for e := range r.current.Load().all {
		for i, u := range e.uses {
			last := u.last.Load()
			if last <= u.drained.Load() {
				continue
			}
			raise(&u.drained, last)
			list = append(list, Use{
				SecretRef: SecretRef{e.client.ID, e.client.Secrets[i].ID},
				At:        time.Unix(last, 0).UTC(),
				Registry:  e.client.Source == SourceRegistry,
			})
		}
	}
	return list
}

// Unused makes the next call of [Registry.Used] return list again.
func (r *Registry) Unused(list []Use) {
	s := r.current.Load()
	for _, u := range list {
		if cell := s.get(u.Client).useOf(u.Secret); cell != nil {
			cell.drained.Store(0)
		}
	}
}

// LastUsed returns when a secret was last used on this gateway; zero: never.
func (r *Registry) LastUsed(ref SecretRef) time.Time {
	cell := r.current.Load().get(ref.Client).useOf(ref.Secret)
	if cell == nil || cell.last.Load() == 0 {
		return time.Time{}
	}
	return time.Unix(cell.last.Load(), 0).UTC()
}

// useOf returns the use of the secret with the given id, or nil.
func (e *entry) useOf(secret string) *use {
	if e == nil {
		return nil
	}
	for i, have := range e.client.Secrets {
		if have.ID == secret {
			return e.uses[i]
		}
	}
	return nil
}
