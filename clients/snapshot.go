package clients

import (
	"hash/maphash"
	"maps"
	"slices"
)

// snapshot is one immutable state of the registry. The zero value is empty.
type snapshot struct {
	version    uint64
	configured map[string]*entry

	loaded   bool
	revision uint64
	stored   shards

	// secrets counts the clients by their number of secrets.
	secrets [MaxSecrets + 1]int
}

// entry is one client of a snapshot, with the times at which its secrets were used.
type entry struct {
	client Client
	uses   []*use // of the secret with the same index
}

// next returns a copy of s with the next version.
func (s *snapshot) next() *snapshot {
	next := *s
	next.version++
	return &next
}

// get returns the client with the given id, the configured one if there are two, or nil.
func (s *snapshot) get(id string) *entry {
	if e := s.configured[id]; e != nil {
		return e
	}
	return s.stored.get(id)
}

// all iterates over all clients but the hidden ones.
func (s *snapshot) all(yield func(*entry) bool) {
	for _, e := range s.configured {
		if !yield(e) {
			return
		}
	}
	for e := range s.stored.all {
		if s.configured[e.client.ID] == nil && !yield(e) {
			return
		}
	}
}

// slots returns the number of comparisons of every authentication: the largest number of secrets of
// any client, at least 1.
func (s *snapshot) slots() int {
	for n := MaxSecrets; n > 1; n-- {
		if s.secrets[n] > 0 {
			return n
		}
	}
	return 1
}

// count sets secrets by counting all clients.
func (s *snapshot) count() {
	s.secrets = [MaxSecrets + 1]int{}
	for _, e := range s.configured {
		s.recount(e, 1)
	}
	for e := range s.stored.all {
		s.recount(e, 1)
	}
}

// recount adds by to the number of clients with as many secrets as e.
func (s *snapshot) recount(e *entry, by int) {
	if e != nil {
		s.secrets[min(len(e.client.Secrets), MaxSecrets)] += by
	}
}

// clashes returns the [*ClashError] for all as the configured clients, nil if there is none.
func (s *snapshot) clashes(all []Client) error {
	seen := make(map[string]bool, len(all))
	var e ClashError
	for _, c := range all {
		if seen[c.ID] {
			e.Twice = append(e.Twice, c.ID)
		} else if s.stored.get(c.ID) != nil {
			e.Stored = append(e.Stored, c.ID)
		}
		seen[c.ID] = true
	}
	if len(e.Twice)+len(e.Stored) == 0 {
		return nil
	}
	slices.Sort(e.Twice)
	slices.Sort(e.Stored)
	e.Twice = slices.Compact(e.Twice)
	return &e
}

// shards is a map for copy-on-write: a change copies only one of its parts. A look-up costs one
// more hash than in a plain map. The zero value is empty.
type shards struct {
	parts *[shardCount]map[string]*entry
}

const shardCount = 256

var shardSeed = maphash.MakeSeed()

func shardOf(id string) int { return int(maphash.String(shardSeed, id) % shardCount) }

func (m shards) get(id string) *entry {
	if m.parts == nil {
		return nil
	}
	return m.parts[shardOf(id)][id]
}

func (m shards) all(yield func(*entry) bool) {
	if m.parts == nil {
		return
	}
	for _, part := range m.parts {
		for _, e := range part {
			if !yield(e) {
				return
			}
		}
	}
}

// edit begins a change. It does not change m.
func (m shards) edit() *shardEdit {
	e := &shardEdit{parts: new([shardCount]map[string]*entry)}
	if m.parts != nil {
		*e.parts = *m.parts
	}
	return e
}

// shardEdit is a change of [shards] in progress. It copies a part when it first changes it.
type shardEdit struct {
	parts *[shardCount]map[string]*entry
	own   [shardCount]bool
}

func (e *shardEdit) part(id string) map[string]*entry {
	i := shardOf(id)
	if !e.own[i] {
		e.own[i] = true
		part := make(map[string]*entry, len(e.parts[i])+1)
		maps.Copy(part, e.parts[i])
		e.parts[i] = part
	}
	return e.parts[i]
}

func (e *shardEdit) get(id string) *entry { return e.parts[shardOf(id)][id] }
func (e *shardEdit) put(entry *entry)     { e.part(entry.client.ID)[entry.client.ID] = entry }

func (e *shardEdit) remove(id string) {
	if e.get(id) != nil {
		delete(e.part(id), id)
	}
}

func (e *shardEdit) done() shards { return shards{e.parts} }
