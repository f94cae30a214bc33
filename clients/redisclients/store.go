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

// Options configures a [Store].
type Options struct {
	// Prefix starts every key. Default: "sg".
	Prefix string
	// Timeout limits every round trip. Default: 250 ms.
	Timeout time.Duration
	// MaxTTL is the longest token lifetime in the configuration. The generation of a disabled or
	// deleted client is kept for as long. Default: 24 h.
	MaxTTL time.Duration
	// Now is the clock for the timestamps of clients; it should follow Redis TIME. Default:
	// time.Now.
	Now func() time.Time
	// Report, if set, is called with errors that an operator should see: [*DamagedError],
	// [*NewerError] or [*LostError]. It must not block.
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

// grace is added to the time for which a generation is kept, because clocks differ a little, and
// the record of a token outlives the token by a second.
const grace = time.Minute

// Store keeps clients in Redis and keeps a registry current with it. It implements [clients.Store]
// and is safe for concurrent use. If Redis does not respond, the error is an [*Error], which
// matches [clients.ErrUnavailable].
type Store struct {
	rdb        redis.UniversalClient
	keys       keys
	scripts    *redisscript.Runner
	registry   *clients.Registry
	options    Options
	refreshing chan struct{} // has a value while a refresh runs

	mu     sync.Mutex // held while the copy changes, never during a round trip
	copied copied
}

var _ clients.Store = (*Store)(nil)

// New returns a store that also keeps its clients in registry. It does not contact Redis:
// [Store.Refresh] fills the registry. rdb may be any client of go-redis. Set its option
// ContextTimeoutEnabled; otherwise a Redis that hangs delays callers for longer than Timeout.
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

// Notes of a [clients.Change].
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

// endBy returns a copy of secrets without those that have expired at now. Unless end is zero, each
// secret in the copy expires at end at the latest.
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
		w.after.Secrets = slices.Concat(w.after.Secrets[:i], w.after.Secrets[i+1:]) // a new slice, because the old client uses the old one
		w.forget = []string{usedField(id, secretID)}
		if len(w.after.Secrets) == 0 {
			change.Note = noSecrets
		}
		return nil
	})
}

// Delete implements [clients.Store]. It also deletes a client that a configured one hides.
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

// edit changes an existing client. how prepares the write, in which after is a copy of the client,
// and the result.
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

// attempts is the maximum number of tries of a change without an expected revision.
const attempts = 10

var errBusy = errors.New("the client keeps being changed by others")

// attempt calls do with the client as the registry has it, or as Redis has it if the registry does
// not have the expected revision. Without an expected revision, attempt reads the client from Redis
// and calls do again after a conflict, or after an error for which a stale copy may be the reason.
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
		// Redis has lost the client; it was not deleted.
		return nil, failure(op, errForgotten)
	default:
		return nil, clients.ErrNotFound
	}
}

// LastUsed implements [clients.Store]. It includes uses on this gateway that are not recorded in
// Redis yet.
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

// touchAtOnce is the maximum number of uses for one script, so that it does not block Redis for
// long.
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

// Flush records in Redis the uses that the registry has collected since the last call. Call it
// about once a minute, and when the gateway stops. If it fails, the next call records these uses,
// too.
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

// now returns the time in the precision of a store.
func (s *Store) now() time.Time { return instant(s.options.Now().UnixMilli()) }

// named returns the secret of a credential. If the secret has no id, it gets s and a number one
// above those of beside.
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

// trimS returns the number in an id that named has chosen, or "".
func trimS(id string) string {
	if len(id) < 2 || len(id) > 10 || id[0] != 's' {
		return ""
	}
	return id[1:]
}

func usedField(client, secret string) string { return client + "/" + secret }

// usedFields returns the fields of all secrets of c.
func usedFields(c *clients.Client) []string {
	fields := make([]string, len(c.Secrets))
	for i, s := range c.Secrets {
		fields[i] = usedField(c.ID, s.ID)
	}
	return fields
}

// goneFields returns the fields of the secrets that before has and after does not have.
func goneFields(before, after *clients.Client) []string {
	return slices.DeleteFunc(usedFields(before), func(field string) bool {
		return slices.Contains(usedFields(after), field)
	})
}
