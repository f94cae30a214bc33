package redisclients

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Limits on what one script returns or takes, so that it does not block Redis for long.
const (
	documentsAtOnce = 500
	changesAtOnce   = 2000
)

// Revision returns the revision of the copy in the registry, which has all changes up to it.
func (s *Store) Revision() uint64 { return s.registry.Revision() }

// Refresh compares the registry with Redis, reads what differs, and writes back what Redis has
// lost. When Refresh returns nil, the registry holds every change that was made before the call. One
// call of Refresh or Poll runs at a time; the others wait.
func (s *Store) Refresh(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.exit()
	return s.compare(ctx)
}

// Poll is a cheaper Refresh: it reads only the changes since the last call, in one round trip for
// 500 changed clients. It does a full Refresh if nothing was read before, or if a change seems to
// be missing.
func (s *Store) Poll(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.exit()
	if s.registry.Loaded() {
		done, err := s.catchUp(ctx)
		if done || err != nil {
			return err
		}
	}
	return s.compare(ctx)
}

// enter waits until no other refresh is running.
func (s *Store) enter(ctx context.Context) error {
	select {
	case s.refreshing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failure("read the clients", context.Cause(ctx))
	}
}

func (s *Store) exit() { <-s.refreshing }

// catchUp reads the changes since the revision of the copy. It returns false if the copy may be
// incomplete afterwards.
func (s *Store) catchUp(ctx context.Context) (bool, error) {
	since := s.Revision()
	page, err := s.scan(ctx, since, true)
	if err != nil {
		return false, failure("read the changes of clients", err)
	}
	s.apply(page.entries)
	s.mu.Lock()
	defer s.mu.Unlock()
	if page.revision < since || page.restored != s.copied.restored || s.copied.minus(page.counts) != s.copied.odd {
		return false, nil
	}
	s.registry.Complete(page.revision)
	return true, nil
}

// rounds is the maximum number of comparisons until the copy and Redis agree.
const rounds = 5

var errUnsettled = errors.New("clients keep being lost")

// compare makes the copy and Redis equal: for each client the later version wins.
func (s *Store) compare(ctx context.Context) error {
	const op = "compare the clients"
	for range rounds {
		page, err := s.scan(ctx, 0, !s.registry.Loaded())
		if err != nil {
			return failure(op, err)
		}
		if err := s.fetch(ctx, page); err != nil {
			return failure(op, err)
		}
		lost, err := s.lost(ctx, page)
		if err != nil {
			return failure(op, err)
		}
		if len(lost) == 0 {
			s.settle(page)
			return nil
		}
		if err := s.restore(ctx, lost); err != nil {
			return failure(op, err)
		}
	}
	return failure(op, errUnsettled)
}

// settle records that the copy equals p, which lists all changes.
func (s *Store) settle(p page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copied.restored, s.copied.odd = p.restored, s.copied.minus(p.counts)
	s.registry.Complete(p.revision)
}

// fetch applies the clients that are newer in Redis than in the copy.
func (s *Store) fetch(ctx context.Context, p page) error {
	if p.documents {
		s.apply(p.entries)
		return nil
	}
	for some := range slices.Chunk(s.newer(p), documentsAtOnce) {
		list, err := s.read(ctx, some)
		if err != nil {
			return err
		}
		s.apply(list)
	}
	return nil
}

// newer returns the clients that are newer in Redis than in the copy. At the same revision, a
// document is newer than none, because Redis had lost the document.
func (s *Store) newer(p page) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, e := range p.entries {
		known, ok := s.copied.versions[e.id]
		if !ok || known.revision < e.revision || known.revision == e.revision && known.state == deleted && e.exists {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// lost returns what to write back to Redis: the clients whose version in the copy is later or, if
// there are none, the documents that Redis has but does not list.
func (s *Store) lost(ctx context.Context, p page) (map[string]loss, error) {
	listed := make(map[string]entry, len(p.entries))
	documents := 0
	for _, e := range p.entries {
		listed[e.id] = e
		if e.exists {
			documents++
		}
	}
	lost := s.lostFrom(listed)
	if len(lost) == 0 && p.counts.documents > documents {
		return s.unlisted(ctx, listed)
	}
	return lost, nil
}

// loss is what to write back about a client.
type loss struct {
	revision uint64
	document string // empty if the client was deleted
}

func (s *Store) lostFrom(listed map[string]entry) map[string]loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := map[string]loss{}
	for id, known := range s.copied.versions {
		there := listed[id]
		vanished := known.state == alive && known.revision == there.revision && !there.exists
		if known.revision <= there.revision && !vanished {
			continue
		}
		switch c := s.registry.Stored(id); {
		case known.state == deleted:
			lost[id] = loss{known.revision, ""}
		case known.state == alive && c != nil:
			if text, err := encodeRecord(c); err == nil {
				lost[id] = loss{known.revision, text}
			}
		} // there is nothing to write back for a damaged document
	}
	return lost
}

// unlisted returns the documents in Redis that are missing from its list of changes.
func (s *Store) unlisted(ctx context.Context, listed map[string]entry) (map[string]loss, error) {
	lost := map[string]loss{}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		page, next, err := s.documents(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for pair := range slices.Chunk(page, 2) {
			id, text := pair[0], pair[1]
			if c, err := decodeRecord(id, text); err == nil && listed[id].revision < c.Revision {
				lost[id] = loss{c.Revision, text}
			}
		}
		cursor = next
	}
	return lost, nil
}

// documents returns one page of the documents, ids and texts in turn.
func (s *Store) documents(ctx context.Context, cursor uint64) (page []string, next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	page, next, err = s.rdb.HScan(ctx, s.keys.documents, cursor, "", documentsAtOnce).Result()
	if err == nil && len(page)%2 != 0 {
		err = errReply
	}
	return page, next, err
}

// restore writes clients back to Redis.
func (s *Store) restore(ctx context.Context, lost map[string]loss) error {
	args := make([]any, 0, 3*len(lost))
	for id, l := range lost {
		args = append(args, id, l.revision, l.document)
	}
	restored := 0
	for some := range slices.Chunk(args, 3*documentsAtOnce) {
		reply, err := s.ask(ctx, restoreScript, append([]any{s.Revision()}, some...)...)
		if err != nil {
			return err
		}
		if len(reply) != 1 {
			return errReply
		}
		n, err := parseExact(reply[0])
		if err != nil {
			return err
		}
		restored += int(n)
	}
	if restored > 0 {
		s.options.Report(&LostError{restored})
	}
	return nil
}

// page is the result of a scan.
type page struct {
	revision  uint64
	counts    counts
	restored  string
	documents bool // whether the entries have their documents
	entries   []entry
}

// scan lists the changes after a revision, each client once, with or without the documents.
func (s *Store) scan(ctx context.Context, since uint64, documents bool) (page, error) {
	all, limit := page{documents: documents}, changesAtOnce
	if documents {
		limit = documentsAtOnce
	}
	at := map[string]int{} // index in all.entries
	for begun := false; ; begun = true {
		next, err := s.scanPage(ctx, since, limit, documents)
		if err != nil {
			return page{}, err
		}
		if begun && next.restored != all.restored {
			return page{}, errors.New("clients were restored while they were read")
		}
		all.revision, all.counts, all.restored = next.revision, next.counts, next.restored
		for _, e := range next.entries {
			if i, twice := at[e.id]; twice {
				all.entries[i] = e // it was changed while the pages were read
				continue
			}
			at[e.id] = len(all.entries)
			all.entries = append(all.entries, e)
		}
		if len(next.entries) < limit {
			return all, nil
		}
		since = next.entries[len(next.entries)-1].revision
	}
}

func (s *Store) scanPage(ctx context.Context, since uint64, limit int, documents bool) (page, error) {
	withDocuments := 0
	if documents {
		withDocuments = 1
	}
	reply, err := s.ask(ctx, changesScript, since, limit, withDocuments)
	if err != nil {
		return page{}, err
	}
	if len(reply) < 4 {
		return page{}, errReply
	}
	p := page{restored: reply[3]}
	var n [3]uint64
	for i := range n {
		if n[i], err = parseExact(reply[i]); err != nil {
			return page{}, err
		}
	}
	p.revision, p.counts = n[0], counts{int(n[1]), int(n[2])}
	p.entries, err = parseEntries(reply[4:], documents)
	return p, err
}

// read returns the state of clients in Redis, in the order of ids.
func (s *Store) read(ctx context.Context, ids []string) ([]entry, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	reply, err := s.ask(ctx, readScript, args...)
	if err != nil {
		return nil, err
	}
	list, err := parseEntries(reply, true)
	if err == nil && len(list) != len(ids) {
		err = errReply
	}
	return list, err
}

// parseEntries decodes triples of client id, revision and document.
func parseEntries(reply []string, documents bool) ([]entry, error) {
	if len(reply)%3 != 0 {
		return nil, errReply
	}
	list := make([]entry, 0, len(reply)/3)
	for triple := range slices.Chunk(reply, 3) {
		e := entry{id: triple[0]}
		var err error
		if e.revision, err = parseExact(triple[1]); err != nil {
			return nil, fmt.Errorf("the revision of a client: %w", err)
		}
		e.exists = triple[2] != ""
		if documents && e.exists {
			e.decode(triple[2])
		}
		list = append(list, e)
	}
	return list, nil
}

// decode decodes the document of e.
func (e *entry) decode(text string) {
	c, err := decodeRecord(e.id, text)
	if err != nil {
		e.err = err
		return
	}
	e.client = &c
}
