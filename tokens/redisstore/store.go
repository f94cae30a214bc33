package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/internal/redisscript"
	"snowgate/tokens"
)

// Store keeps tokens in Redis. It implements [tokens.Store],
// [tokens.KeyStore], [tokens.KeyRemover], [tokens.RuleStore] and [tokens.Scanner], and is safe for
// concurrent use. Every failure is an
// [*Error], which matches [tokens.ErrUnavailable].
type Store struct {
	client  redis.UniversalClient
	batch   *batcher // nil with a cluster
	prefix  string
	timeout time.Duration
	probes  *probes
	once    bool // no breaker
	// demoted is true if the server refused to write at the last probe of the monitor. It may be a
	// replica now, and its copy of a token proves nothing.
	demoted atomic.Bool

	scripts *redisscript.Runner // with the keys of what all gateways share
	longest atomic.Int64        // longest lifetime of a token known, in milliseconds
	observe func(command string, d time.Duration, kind string)

	waitReplicas int
	waitIssue    bool
	waitTimeout  time.Duration
}

var (
	_ tokens.Store      = (*Store)(nil)
	_ tokens.KeyStore   = (*Store)(nil)
	_ tokens.KeyRemover = (*Store)(nil)
	_ tokens.RuleStore  = (*Store)(nil)
	_ tokens.Scanner    = (*Store)(nil)
)

// Client returns the connection pool, for other packages that store data in the same Redis. Its
// commands pass the observer and the breaker, but only their own context limits them. Closing the
// Store closes it.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Prefix returns the prefix of all keys.
func (s *Store) Prefix() string { return s.prefix }

// Close closes all connections and waits for the goroutines that probe. Running and later
// operations fail.
func (s *Store) Close() error {
	s.probes.close()
	return s.client.Close()
}

// Save implements [tokens.Store] with SET key value NX PX ttl. It takes one round trip, another one
// if the id is taken, and one more with [Options].WaitIssue. The error for a record that is too
// large does not match [tokens.ErrUnavailable].
func (s *Store) Save(ctx context.Context, r tokens.Record, ttl time.Duration) error {
	value, err := encodeRecord(r)
	if err != nil {
		return err
	}
	if ttl <= 0 {
		return fmt.Errorf("redisstore: a record cannot live for %s", ttl)
	}
	if part := ttl % time.Millisecond; part > 0 {
		ttl += time.Millisecond - part
	}
	budget := s.timeout
	if s.waitIssue {
		budget += s.waitTimeout
	}
	ctx, cancel := within(ctx, budget)
	defer cancel()
	key := s.tokenKey(r.Token.ID)
	set := redis.NewBoolCmd(ctx, "set", key, value, "px", ttl.Milliseconds(), "nx")
	if s.waitIssue {
		err = s.durably(ctx, key, func(ctx context.Context, rdb server) error { return rdb.Process(ctx, set) })
	} else {
		err = s.process(ctx, set)
	}
	if err != nil {
		return failure("save a token", err)
	}
	if set.Val() {
		return nil
	}
	return s.sameRecord(ctx, key, r)
}

// sameRecord handles a refused write. If the reply to an earlier attempt was lost, the existing
// record is r itself.
func (s *Store) sameRecord(ctx context.Context, key string, r tokens.Record) error {
	value, err := s.client.Get(ctx, key).Result()
	if err != nil {
		if err == redis.Nil { //nolint:errorlint // see load
			err = errors.New("the record that was in the way is gone")
		}
		return failure("save a token", err)
	}
	there, err := decodeRecord(r.Token.ID, value)
	if err != nil || !there.Digest.Equal(r.Digest) {
		return tokens.ErrDuplicateID
	}
	return nil
}

// Load implements [tokens.Store] with one GET, or as part of an MGET with other callers. If there
// is no record, a second command confirms that, to which only a primary replies: a replica during
// its first synchronisation has no records either. An existing record counts only if the server was
// a primary at the last probe of a running [Monitor].
func (s *Store) Load(ctx context.Context, id idgen.ID) (tokens.Record, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	value, err := s.load(ctx, s.tokenKey(id))
	if err != nil {
		return tokens.Record{}, err
	}
	record, err := decodeRecord(id, value)
	if err != nil {
		return tokens.Record{}, failure("read a token", err)
	}
	return record, nil
}

// process sends a command of a kind that many goroutines send at the same time.
func (s *Store) process(ctx context.Context, cmd redis.Cmder) error {
	if s.batch == nil {
		return s.client.Process(ctx, cmd)
	}
	return s.batch.process(ctx, cmd)
}

// bounded applies the timeout of one operation, unless ctx ends earlier.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, s.timeout)
}

// within returns ctx if it ends within d, or else a context that does.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// PatientTimeout returns the timeout of operations for which no request waits, if that of a decision is
// timeout: a command on a new connection takes up to four round trips, for TCP, TLS, HELLO, and itself.
func PatientTimeout(timeout time.Duration) time.Duration { return 4 * timeout }

// patient applies the timeout of an operation for which no request waits. It leaves time for a new
// connection even if each round trip takes as long as a decision may. So decisions find open
// connections, however far away Redis is.
func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, PatientTimeout(s.timeout))
}

// get reads the value of a key, for many goroutines at the same time.
func (s *Store) get(ctx context.Context, key string) (string, error) {
	if s.batch == nil {
		return s.client.Get(ctx, key).Result()
	}
	return s.batch.get(ctx, key)
}

// load compares with redis.Nil by ==, not errors.Is. An error that wraps it, such as that of a
// Sentinel without a primary, is not a reply about the key.
func (s *Store) load(ctx context.Context, key string) (string, error) {
	if s.demoted.Load() {
		return "", failure("read a token", errDemoted)
	}
	value, err := s.get(ctx, key)
	if err == redis.Nil { //nolint:errorlint // see above
		// GETEX without options is a GET that counts as a write.
		value, err = s.client.GetEx(ctx, key, -1).Result()
	}
	if err == redis.Nil { //nolint:errorlint // see above
		return "", tokens.ErrUnknown
	}
	if err != nil {
		return "", failure("read a token", err)
	}
	return value, nil
}

// errDemoted is the error of reads of tokens from a server that refuses writes.
var errDemoted = &demotedError{}

type demotedError struct{}

func (*demotedError) Error() string { return "the server takes no writes: it may be a replica" }
func (*demotedError) kind() string  { return KindReadOnly }

// Delete implements [tokens.Store] with one script, which removes the record and informs the other
// gateways. If Redis refuses to inform them, the record is removed all the same, and they use a
// cached copy until it becomes stale. Delete leaves no data in Redis.
func (s *Store) Delete(ctx context.Context, id idgen.ID) error {
	var refusal string
	err := s.durably(ctx, s.tokenKey(id), func(ctx context.Context, rdb server) error {
		var err error
		refusal, err = s.scripts.On(rdb).With(s.tokenKey(id)).Run(ctx, tokenDeleteScript, id.String()).Text()
		return err
	})
	if err != nil {
		return failure("delete a token", err)
	}
	s.reportPush(refusal)
	return nil
}

// LoadKeys implements [tokens.KeyStore] with one HGETALL.
func (s *Store) LoadKeys(ctx context.Context) ([]tokens.TagKey, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	fields, err := s.client.HGetAll(ctx, s.sharedKey("tagkey")).Result()
	if err != nil {
		return nil, failure("read the tag keys", err)
	}
	keys := make([]tokens.TagKey, 0, len(fields))
	for field, value := range fields {
		start, err := strconv.ParseInt(field, 10, 64)
		if err != nil || start < 0 || strconv.FormatInt(start, 10) != field {
			return nil, failure("read the tag keys", fmt.Errorf("the field %q is not an instant in Unix milliseconds", field))
		}
		key, err := tokens.ParseKey(value)
		if err != nil {
			return nil, failure("read the tag keys", fmt.Errorf("the key that starts at %d: %w", start, err))
		}
		keys = append(keys, tokens.TagKey{Start: start, Key: key})
	}
	return keys, nil
}

// AddKeys implements [tokens.KeyStore] with one script. It informs the other gateways if it added
// any key.
func (s *Store) AddKeys(ctx context.Context, keys []tokens.TagKey) error {
	args := make([]any, 0, 2*len(keys))
	for _, key := range keys {
		args = append(args, key.Start, key.Key.Reveal())
	}
	return s.write(ctx, "add tag keys", keyAddScript, args...)
}

// RemoveKeys implements [tokens.KeyRemover] with one script. It informs the other gateways if it
// removed any key.
func (s *Store) RemoveKeys(ctx context.Context, starts []int64) error {
	args := make([]any, 0, len(starts))
	for _, start := range starts {
		args = append(args, start)
	}
	return s.write(ctx, "remove tag keys", keyRemoveScript, args...)
}

// tokenKey returns the key of the record of a token. It has no hash tag, so that a cluster
// distributes tokens over its shards.
func (s *Store) tokenKey(id idgen.ID) string { return s.prefix + ":t:" + id.String() }

// sharedKey returns the key of shared data. The hash tag keeps all these keys on one shard.
func (s *Store) sharedKey(name string) string { return "{" + s.prefix + "}:" + name }

// pushChannel returns the channel for pushes. It has the hash tag of the shared keys, so that a
// cluster client subscribes at the node with these keys.
func (s *Store) pushChannel() string { return s.sharedKey("push") }
