package redisclients

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/clients"
	"snowgate/internal/redisscript"
)

// Options says how clients are kept.
type Options struct {
	// Prefix starts every key. Default: "sg".
	Prefix string
	// Timeout bounds every round trip. Default: 250 ms.
	Timeout time.Duration
	// MaxTTL is the longest lifetime of a token that is configured. The end of a
	// client is remembered for as long. Default: 24 h.
	MaxTTL time.Duration
	// Now is the clock for the times that clients carry; it should follow Redis
	// TIME. Default: time.Now.
	Now func() time.Time
	// Report, if set, is told what an operator should know of: a
	// [*DamagedError], a [*NewerError] or a [*LostError]. It must not block.
	Report func(err error)
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = "sg"
	}
	if o.Timeout == 0 {
		o.Timeout = 250 * time.Millisecond
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = 24 * time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	return o
}

// grace is added to the time for which the end of a client is remembered: clocks
// differ a little, and a token's record outlives it by a second.
const grace = time.Minute

// Store keeps clients in Redis, and a registry up to date with it. It implements
// [clients.Store] and is safe for concurrent use. Whatever keeps Redis from being
// asked is an [*Error], which matches [clients.ErrUnavailable].
type Store struct {
	rdb        redis.UniversalClient
	keys       keys
	scripts    *redisscript.Runner
	registry   *clients.Registry
	options    Options
	refreshing chan struct{} // has a value while a refresh runs

	mu     sync.Mutex // held while the copy changes, never while waiting for Redis
	copied copied
}

var _ clients.Store = (*Store)(nil)

// New returns a store that keeps its clients in registry as well. It contacts
// nobody: the registry is filled by [Store.Refresh]. rdb is any client of
// go-redis; make it with ContextTimeoutEnabled, or a Redis that hangs delays
// callers for longer than Timeout.
func New(rdb redis.UniversalClient, registry *clients.Registry, o Options) *Store {
	o = o.withDefaults()
	keys := newKeys(o.Prefix)
	return &Store{
		rdb:        rdb,
		keys:       keys,
		scripts:    keys.runner(rdb),
		registry:   registry,
		options:    o,
		refreshing: make(chan struct{}, 1),
		copied:     copied{versions: map[string]version{}},
	}
}

// Create implements [clients.Store].
func (s *Store) Create(ctx context.Context, d clients.Document, secret clients.Credential) (clients.Change, error) {
	if !clients.ValidID(d.ID) {
		return clients.Change{}, fmt.Errorf("%w: the id", clients.ErrDocument)
	}
	if s.configured(d.ID) {
		return clients.Change{}, fmt.Errorf("%w in the configuration", clients.ErrExists)
	}
	now := s.now()
	after := clients.Client{ID: d.ID, Source: clients.SourceRegistry, CreatedAt: now, UpdatedAt: now}
	d.ApplyTo(&after)
	change := clients.Change{Note: noSecrets}
	if !secret.IsZero() {
		change.Secret, change.Note = named(secret, nil), ""
		after.Secrets = []clients.Secret{change.Secret}
	}
	write := write{id: d.ID, expected: "new", after: &after, stop: true, forget: usedFields(&after)}
	if err := s.put(ctx, "create a client", rand.Text(), write); err != nil {
		return clients.Change{}, err
	}
	change.After = &after
	return change, nil
}

// Operations of a change, as its record names them.
const (
	noSecrets = "The client has no secret: it gets no tokens until one is added."
	stopped   = "The tokens that the client has are not good any more, on every gateway."
)

// Update implements [clients.Store].
func (s *Store) Update(ctx context.Context, d clients.Document, expected uint64) (clients.Change, error) {
	return s.edit(ctx, "update a client", d.ID, expected, func(w *write, change *clients.Change) error {
		d.ApplyTo(w.after)
		if w.stop = d.Disabled && !change.Before.Disabled; w.stop {
			change.Note = stopped
		}
		return nil
	})
}

// AddSecret implements [clients.Store].
func (s *Store) AddSecret(ctx context.Context, id string, secret clients.Credential, others time.Time, expected uint64) (clients.Change, error) {
	if secret.IsZero() {
		return clients.Change{}, errors.New("redisclients: there is no secret to add")
	}
	return s.edit(ctx, "add a secret", id, expected, func(w *write, change *clients.Change) error {
		before := change.Before.Secrets
		added := named(secret, before)
		if slices.ContainsFunc(before, func(s clients.Secret) bool { return s.ID == added.ID || s.SHA256 == added.SHA256 }) {
			return fmt.Errorf("%w: a secret of this name, or this secret", clients.ErrExists)
		}
		kept := endBy(before, others, w.after.UpdatedAt)
		if len(kept) == clients.MaxSecrets {
			return clients.ErrTooManySecrets
		}
		w.after.Secrets = slices.Concat(kept, []clients.Secret{added})
		w.forget = append(goneFields(change.Before, w.after), usedField(id, added.ID))
		change.Secret = added
		return nil
	})
}

// endBy returns a copy of secrets without those that have ended at now, each of
// them ending at the instant end at the latest, unless that is the zero time.
func endBy(secrets []clients.Secret, end, now time.Time) []clients.Secret {
	var kept []clients.Secret
	for _, s := range secrets {
		if !end.IsZero() && (s.ExpiresAt.IsZero() || end.Before(s.ExpiresAt)) {
			s.ExpiresAt = instant(end.UnixMilli())
		}
		if s.Live(now) {
			kept = append(kept, s)
		}
	}
	return kept
}

// RemoveSecret implements [clients.Store].
func (s *Store) RemoveSecret(ctx context.Context, id, secretID string, expected uint64) (clients.Change, error) {
	return s.edit(ctx, "remove a secret", id, expected, func(w *write, change *clients.Change) error {
		i := slices.IndexFunc(w.after.Secrets, func(s clients.Secret) bool { return s.ID == secretID })
		if i < 0 {
			return fmt.Errorf("%w: the secret", clients.ErrNotFound)
		}
		change.Secret = w.after.Secrets[i]
		w.after.Secrets = slices.Concat(w.after.Secrets[:i], w.after.Secrets[i+1:]) // the client shares them
		w.forget = []string{usedField(id, secretID)}
		if len(w.after.Secrets) == 0 {
			change.Note = noSecrets
		}
		return nil
	})
}

// Delete implements [clients.Store]. A client that is hidden by a configured one
// can be deleted, too.
func (s *Store) Delete(ctx context.Context, id string, expected uint64) (clients.Change, error) {
	const op = "delete a client"
	name := rand.Text()
	if s.configured(id) && s.registry.Stored(id) == nil {
		return clients.Change{}, clients.ErrReadOnly
	}
	var change clients.Change
	err := s.attempt(ctx, op, id, expected, func(before *clients.Client) error {
		change = clients.Change{Before: before, Note: stopped}
		return s.remove(ctx, op, name, before)
	})
	if err != nil {
		return clients.Change{}, err
	}
	return change, nil
}

// edit changes a client that exists: how sets up what to write, with a copy of
// the client in after, and what to say about it.
func (s *Store) edit(ctx context.Context, op, id string, expected uint64, how func(*write, *clients.Change) error) (clients.Change, error) {
	if s.configured(id) {
		return clients.Change{}, clients.ErrReadOnly
	}
	name := rand.Text()
	var change clients.Change
	err := s.attempt(ctx, op, id, expected, func(before *clients.Client) error {
		after := *before
		after.UpdatedAt = s.now()
		change = clients.Change{Before: before, After: &after}
		w := write{id: id, expected: strconv.FormatUint(before.Revision, 10), after: &after}
		if err := how(&w, &change); err != nil {
			return err
		}
		return s.put(ctx, op, name, w)
	})
	if err != nil {
		return clients.Change{}, err
	}
	return change, nil
}

// attempts is how often a change is tried that may be made whatever the revision
// of the client is.
const attempts = 10

var errBusy = errors.New("the client keeps being changed by others")

// attempt calls do with the client as it is: first as it is known here, then, if
// that may be why it fails, as Redis has it. If the caller expects no certain
// revision, a conflict is tried again.
func (s *Store) attempt(ctx context.Context, op, id string, expected uint64, do func(before *clients.Client) error) error {
	before, fresh := s.registry.Stored(id), false
	for range attempts {
		if before == nil || expected != 0 && before.Revision != expected {
			var err error
			if before, err = s.Load(ctx, id); err != nil {
				return err
			}
			fresh = true
		}
		if expected != 0 && before.Revision != expected {
			return clients.ErrConflict
		}
		err := do(before)
		stale := errors.Is(err, clients.ErrConflict) || !fresh && !errors.Is(err, clients.ErrUnavailable)
		if err == nil || expected != 0 || !stale {
			return err
		}
		before = nil
	}
	return failure(op, errBusy)
}

// Load implements [clients.Store].
func (s *Store) Load(ctx context.Context, id string) (*clients.Client, error) {
	const op = "read a client"
	if !clients.ValidID(id) {
		return nil, clients.ErrNotFound
	}
	list, err := s.read(ctx, []string{id})
	switch {
	case err != nil:
		return nil, failure(op, err)
	case list[0].err != nil:
		return nil, failure(op, list[0].err)
	case list[0].client != nil:
		return list[0].client, nil
	case s.registry.Stored(id) != nil && list[0].revision == 0:
		// Redis has not deleted it, but forgotten it.
		return nil, failure(op, errForgotten)
	default:
		return nil, clients.ErrNotFound
	}
}

// LastUsed implements [clients.Store]. Uses of this gateway that are not written
// down yet count as well.
func (s *Store) LastUsed(ctx context.Context, of ...*clients.Client) (map[clients.SecretRef]time.Time, error) {
	var refs []clients.SecretRef
	var fields []string
	for _, c := range of {
		for _, secret := range c.Secrets {
			refs = append(refs, clients.SecretRef{Client: c.ID, Secret: secret.ID})
			fields = append(fields, usedField(c.ID, secret.ID))
		}
	}
	used := make(map[clients.SecretRef]time.Time, len(refs))
	if len(refs) == 0 {
		return used, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	values, err := s.rdb.HMGet(ctx, s.keys.uses, fields...).Result()
	if err != nil {
		return nil, failure("read when secrets were used", err)
	}
	for i, ref := range refs {
		at := s.registry.LastUsed(ref)
		if text, ok := values[i].(string); ok {
			if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds > at.Unix() {
				at = time.Unix(seconds, 0).UTC()
			}
		}
		if !at.IsZero() {
			used[ref] = at
		}
	}
	return used, nil
}

// touchAtOnce bounds how long one script keeps Redis busy.
const touchAtOnce = 500

// Touch implements [clients.Store]: one round trip for 500 uses.
func (s *Store) Touch(ctx context.Context, uses []clients.Use) error {
	for some := range slices.Chunk(uses, touchAtOnce) {
		args := make([]any, 0, 3*len(some))
		for _, u := range some {
			owner := ""
			if u.Registry {
				owner = u.Client
			}
			args = append(args, usedField(u.Client, u.Secret), owner, u.At.Unix())
		}
		if _, err := s.ask(ctx, touchScript, args...); err != nil {
			return failure("write down when secrets were used", err)
		}
	}
	return nil
}

// Flush writes down the uses that the registry has noted since the last time. It
// is meant to be called once a minute, and when the gateway stops. If it fails,
// the uses are kept for the next time.
func (s *Store) Flush(ctx context.Context) error {
	uses := s.registry.Used()
	if len(uses) == 0 {
		return nil
	}
	err := s.Touch(ctx, uses)
	if err != nil {
		s.registry.Unused(uses)
	}
	return err
}

// configured reports whether a configured client has the id.
func (s *Store) configured(id string) bool {
	c := s.registry.Lookup(id)
	return c != nil && c.Source != clients.SourceRegistry
}

// now is the time in the precision that is kept.
func (s *Store) now() time.Time { return instant(s.options.Now().UnixMilli()) }

// named returns the secret of a credential, under a name that is not among
// beside if it has none: the number that follows theirs.
func named(credential clients.Credential, beside []clients.Secret) clients.Secret {
	secret := credential.Secret()
	if secret.ID != "" {
		return secret
	}
	highest := 0
	for _, s := range beside {
		if n, err := strconv.Atoi(trimS(s.ID)); err == nil {
			highest = max(highest, n)
		}
	}
	secret.ID = "s" + strconv.Itoa(highest+1)
	return secret
}

// trimS returns the number in a name that the store chose, else nothing.
func trimS(id string) string {
	if len(id) < 2 || len(id) > 10 || id[0] != 's' {
		return ""
	}
	return id[1:]
}

func usedField(client, secret string) string { return client + "/" + secret }

// usedFields are the fields of all secrets of c.
func usedFields(c *clients.Client) []string {
	fields := make([]string, len(c.Secrets))
	for i, s := range c.Secrets {
		fields[i] = usedField(c.ID, s.ID)
	}
	return fields
}

// goneFields are the fields of the secrets that before has and after has not.
func goneFields(before, after *clients.Client) []string {
	return slices.DeleteFunc(usedFields(before), func(field string) bool {
		return slices.Contains(usedFields(after), field)
	})
}
