package clients

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/scope"
)

// Registry holds all clients in two layers: the configured clients, from the file and the
// environment, and the clients of a [Store]. If both have a client of the same id, the configured
// one hides the other.
//
// Readers never block. A change replaces the snapshot with a new one, which shares all unchanged
// parts with the old one. Use [NewRegistry]. All methods are safe for concurrent use.
type Registry struct {
	defaultTTL time.Duration
	following  *following // nil: there is no store
	current    atomic.Pointer[snapshot]
	changing   sync.Mutex // one change at a time
}

// following holds the arguments of [Registry.Follow].
type following struct {
	confirmed func() bool
	clash     func(id string)
}

// NewRegistry returns an empty registry. defaultTTL is the token lifetime of clients without one of
// their own.
func NewRegistry(defaultTTL time.Duration) *Registry {
	r := &Registry{defaultTTL: defaultTTL}
	r.current.Store(new(snapshot))
	return r
}

// Follow tells the registry that there is a store, of which the registry has a copy that may be
// stale. Until [Registry.Complete] is called, and whenever confirmed reports false,
// [Registry.Authenticate] returns [ErrUnavailable] for every client that is not configured.
// confirmed reports whether the copy was found to be current a moment ago; it is called often and
// must be fast. clash, if not nil, is called for every client of the store that a configured one of
// the same id hides from now on; it must neither block nor change the registry. Call Follow once,
// before anything else.
func (r *Registry) Follow(confirmed func() bool, clash func(id string)) {
	r.following = &following{confirmed, clash}
}

// ClashError lists client ids that are not unique.
type ClashError struct {
	// Twice holds the ids that are configured twice. Stored holds the configured ids that the store
	// has as well. Both are sorted.
	Twice, Stored []string
}

func (e *ClashError) Error() string {
	var parts []string
	if len(e.Twice) > 0 {
		parts = append(parts, "configured twice: "+strings.Join(e.Twice, ", "))
	}
	if len(e.Stored) > 0 {
		parts = append(parts, "also in the registry, where they must be deleted first: "+strings.Join(e.Stored, ", "))
	}
	return fmt.Sprintf("clients: clients of the same name: %s", strings.Join(parts, "; "))
}

// ReplaceFile replaces all configured clients. The registry keeps what the values point to, so the
// caller must not modify it afterwards. If an id is configured twice, or the store has it as well,
// the registry does not change, and the error is a [*ClashError] that lists all such ids.
func (r *Registry) ReplaceFile(all []Client) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	old := r.current.Load()
	if err := old.clashes(all); err != nil {
		return err
	}
	next := old.next()
	next.configured = make(map[string]*entry, len(all))
	for _, c := range all {
		next.configured[c.ID] = r.entry(c, old.configured[c.ID])
	}
	next.count()
	r.current.Store(next)
	return nil
}

// ChangeStored adds or replaces the clients in changed and removes those in removed, all in the
// layer of the store. The cost of a change hardly grows with the number of clients.
func (r *Registry) ChangeStored(changed []Client, removed []string) {
	r.changing.Lock()
	defer r.changing.Unlock()
	old := r.current.Load()
	next := old.next()
	edit := old.stored.edit()
	for _, c := range changed {
		before := edit.get(c.ID)
		next.recount(before, -1)
		after := r.entry(c, before)
		next.recount(after, 1)
		edit.put(after)
	}
	for _, id := range removed {
		next.recount(edit.get(id), -1)
		edit.remove(id)
	}
	next.stored = edit.done()
	r.current.Store(next)
	r.tell(old, next, changed)
}

// Complete records that [Registry.ChangeStored] has got every change of the store up to a revision.
// After the first call the registry is loaded.
func (r *Registry) Complete(revision uint64) {
	r.changing.Lock()
	defer r.changing.Unlock()
	old := r.current.Load()
	if old.loaded && old.revision == revision {
		return
	}
	next := old.next()
	next.loaded, next.revision = true, revision
	if old.loaded {
		next.version = old.version // the rights of no client have changed
	}
	r.current.Store(next)
}

// tell calls clash for the clients of the store that a configured client hides from now on.
func (r *Registry) tell(old, next *snapshot, changed []Client) {
	if r.following == nil || r.following.clash == nil {
		return
	}
	for _, c := range changed {
		if next.configured[c.ID] != nil && old.stored.get(c.ID) == nil {
			r.following.clash(c.ID)
		}
	}
}

// Current reports whether the registry has the current clients of the store: it is loaded and
// confirmed, or there is no store. See [Registry.Follow].
func (r *Registry) Current() bool { return r.certain(r.current.Load()) }

// Loaded reports whether [Registry.Complete] was called.
func (r *Registry) Loaded() bool { return r.current.Load().loaded }

// Revision returns the revision of the store that the registry has.
func (r *Registry) Revision() uint64 { return r.current.Load().revision }

// Version returns a number that changes whenever the result of [Registry.Entitled] for any client
// may have changed.
func (r *Registry) Version() uint64 { return r.current.Load().version }

// Entitled returns the scopes that a client may have now with a token of that generation. ok is
// false if the client does not exist, is disabled, or has started a later generation. While the
// registry is not current, a missing client may exist in the store; see [Registry.Follow].
func (r *Registry) Entitled(client string, generation uint64) (scopes scope.List, ok bool) {
	c := r.Lookup(client)
	if c == nil || c.Disabled || generation < c.Generation {
		return "", false
	}
	return c.Scopes, true
}

// Lookup returns the client with the given id, or nil. It does not allocate.
func (r *Registry) Lookup(id string) *Client {
	if e := r.current.Load().get(id); e != nil {
		return &e.client
	}
	return nil
}

// Stored returns the client of the store with the given id, or nil. It also returns a client that a
// configured one hides.
func (r *Registry) Stored(id string) *Client {
	if e := r.current.Load().stored.get(id); e != nil {
		return &e.client
	}
	return nil
}

// Len returns the number of clients, without hidden ones.
func (r *Registry) Len() int {
	s := r.current.Load()
	n := len(s.configured)
	for e := range s.stored.all {
		if s.configured[e.client.ID] == nil {
			n++
		}
	}
	return n
}

// Page returns up to limit clients whose ids are greater than after, in the order of their ids, and
// whether there are more. If wanted is not nil, Page skips the clients for which it returns false.
func (r *Registry) Page(after string, limit int, wanted func(*Client) bool) (page []*Client, more bool) {
	s := r.current.Load()
	for e := range s.all {
		if e.client.ID <= after || wanted != nil && !wanted(&e.client) {
			continue
		}
		page = append(page, &e.client)
		// Truncating at twice the length costs n·log(limit) in all.
		if len(page) >= 2*limit+64 {
			page, more = smallest(page, limit), true
		}
	}
	return smallest(page, limit), more || len(page) > limit
}

// smallest sorts page by id and truncates it to limit.
func smallest(page []*Client, limit int) []*Client {
	slices.SortFunc(page, func(a, b *Client) int { return strings.Compare(a.ID, b.ID) })
	return page[:min(limit, len(page))]
}
