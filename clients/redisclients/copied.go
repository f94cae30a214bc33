package redisclients

import "snowgate/clients"

// entry is the state of one client in Redis.
type entry struct {
	id       string
	revision uint64          // of its last change; 0: Redis has no record of the client
	exists   bool            // whether there is a document
	client   *clients.Client // the decoded document; nil: not read, or err is set
	err      error           // why it cannot be decoded
}

// version is the state of one client in the local copy.
type version struct {
	revision uint64
	state    state
}

type state uint8

const (
	alive   state = iota
	deleted       // remembered, so that it does not come back
	damaged       // its document cannot be decoded
)

// copied records which version of each client the registry holds.
type copied struct {
	versions map[string]version
	count    [3]int // by state
	// restored is the last restoration mark of Redis that the copy has seen.
	restored string
	// odd is the difference between the numbers in Redis and those of the copy when everything was
	// compared last: the entries that cannot be parsed. Any other difference means that something
	// has been lost.
	odd counts
}

// counts are the numbers of documents and of recorded changes.
type counts struct{ documents, changes int }

// minus returns by how much n exceeds the numbers of the copy.
func (c *copied) minus(n counts) counts {
	documents := c.count[alive] + c.count[damaged]
	return counts{n.documents - documents, n.changes - documents - c.count[deleted]}
}

// set records a version and reports whether it is new: later than the known one, or a document
// where the known one had none.
func (c *copied) set(id string, v version) bool {
	known, ok := c.versions[id]
	if v.revision == 0 {
		return false // Redis has neither the client nor its deletion
	}
	mended := v.revision == known.revision && v.state == alive && known.state != alive
	if ok && v.revision <= known.revision && !mended {
		return false
	}
	if ok {
		c.count[known.state]--
	}
	c.versions[id] = v
	c.count[v.state]++
	return true
}

// apply puts those entries of list into the registry that are newer than the copy. list has no
// client twice.
func (s *Store) apply(list []entry) {
	var remarks []error
	s.mu.Lock()
	var changed []clients.Client
	var removed []string
	for _, e := range list {
		v := version{e.revision, alive}
		switch {
		case e.err != nil:
			v.state = damaged
		case e.client == nil:
			v.state = deleted
		}
		if !s.copied.set(e.id, v) {
			continue
		}
		switch v.state {
		case alive:
			changed = append(changed, *e.client)
			if e.client.Extra != "" {
				remarks = append(remarks, &NewerError{e.id, e.client.Extra})
			}
		case deleted:
			removed = append(removed, e.id)
		case damaged:
			remarks = append(remarks, &DamagedError{e.id, e.err})
		}
	}
	if len(changed)+len(removed) > 0 {
		s.registry.ChangeStored(changed, removed)
	}
	s.mu.Unlock()
	for _, err := range remarks {
		s.options.Report(err)
	}
}
