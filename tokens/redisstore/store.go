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
	// demoted says that the server refused to write at the monitor's last probe:
	// it may be a replica by now, whose copy of a token proves nothing.
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

// Client returns the connection pool, for adapters that keep other things in
// the same Redis. Its commands are observed and go through the breaker like the
// Store's, but are bounded by their own context; it is closed with the Store.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Prefix returns what every key starts with.
func (s *Store) Prefix() string { return s.prefix }

// Close closes all connections and waits for the goroutines that probe a
// server that is down. Operations that run or come later fail.
func (s *Store) Close() error {
	s.probes.close()
	return s.client.Close()
}

// Save implements [tokens.Store]: SET key value NX PX ttl, one round trip
// unless the id is taken, or one more with [Options].WaitIssue. A record that is too large to be stored is a plain
// error.
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
	key := s.tokenKey(r.Token.ID)
	set := redis.NewBoolCmd(ctx, "set", key, value, "px", ttl.Milliseconds(), "nx")
	if s.waitIssue {
		err = s.durably(ctx, key, func(ctx context.Context, rdb server) error { return rdb.Process(ctx, set) })
	} else {
		var cancel context.CancelFunc
		ctx, cancel = s.bounded(ctx)
		defer cancel()
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

// sameRecord judges a refused write: the response to the first attempt may have
// been lost, and the second one met its own record.
func (s *Store) sameRecord(ctx context.Context, key string, r tokens.Record) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
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

// Load implements [tokens.Store]: one GET, or a share of an MGET with others who
// read. That there is no record is confirmed by a second command that only a
// primary answers, because a replica in its first synchronisation has no records
// either. That there is one counts only while the server was a primary at the last
// probe of a running [Monitor].
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

// process sends a command that many goroutines send at the same time.
func (s *Store) process(ctx context.Context, cmd redis.Cmder) error {
	if s.batch == nil {
		return s.client.Process(ctx, cmd)
	}
	return s.batch.process(ctx, cmd)
}

// bounded applies the budget of one operation, unless ctx ends before.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= s.timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}

// connectTrips is how many round trips a command may take on a new connection: TCP, TLS, HELLO, and
// its own.
const connectTrips = 4

// patient applies the budget of an operation that no request waits for. It is long enough for a new
// connection, each round trip of which has the time of a whole decision. So connections are there
// when decisions need them, however far away Redis is.
func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, connectTrips*s.timeout)
}

// get reads the value of a key, for many goroutines at the same time.
func (s *Store) get(ctx context.Context, key string) (string, error) {
	if s.batch == nil {
		return s.client.Get(ctx, key).Result()
	}
	return s.batch.get(ctx, key)
}

// load compares with redis.Nil by ==, not errors.Is: an error that only wraps
// it, such as that of a Sentinel that does not know the primary, is no response
// about the key.
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

// errDemoted refuses to read tokens from a server that takes no writes.
var errDemoted = &demotedError{}

type demotedError struct{}

func (*demotedError) Error() string { return "the server takes no writes: it may be a replica" }
func (*demotedError) kind() string  { return KindReadOnly }

// Delete implements [tokens.Store]: one script, which removes the record and then
// tells the other gateways. Should Redis refuse to tell them, the token is gone
// all the same, and they notice when their copy is as old as it may get.
// Nothing stays behind in Redis.
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

// LoadKeys implements [tokens.KeyStore]: one HGETALL.
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

// AddKeys implements [tokens.KeyStore]: one script. The other gateways are told
// if it added any.
func (s *Store) AddKeys(ctx context.Context, keys []tokens.TagKey) error {
	args := make([]any, 0, 2*len(keys))
	for _, key := range keys {
		args = append(args, key.Start, key.Key.Reveal())
	}
	return s.write(ctx, "add tag keys", keyAddScript, args...)
}

// RemoveKeys implements [tokens.KeyRemover]: one script. The other gateways are
// told if it removed any.
func (s *Store) RemoveKeys(ctx context.Context, starts []int64) error {
	args := make([]any, 0, len(starts))
	for _, start := range starts {
		args = append(args, start)
	}
	return s.write(ctx, "remove tag keys", keyRemoveScript, args...)
}

// tokenKey is the key of a token's record. It has no hash tag, so that a
// cluster spreads tokens over its shards.
func (s *Store) tokenKey(id idgen.ID) string { return s.prefix + ":t:" + id.String() }

// sharedKey is the key of something there is one of in a deployment; the hash
// tag keeps all of them on one shard.
func (s *Store) sharedKey(name string) string { return "{" + s.prefix + "}:" + name }

// pushChannel is where gateways are told to look again. Its hash tag is that of
// the shared keys, so a cluster client subscribes at the node that has them.
func (s *Store) pushChannel() string { return s.sharedKey("push") }
