package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/claim.lua
var claimLua string

// claimScript works while Redis is full, because it begins with a write that takes no memory.
var claimScript = redis.NewScript(claimLua)

// KeysInRedis is the [Installation.TokenKey] of an installation whose tag keys are kept in Redis.
const KeysInRedis = "redis"

// Installation holds the values on which all gateways of an installation must agree. With other
// values, a gateway misreads ids, or takes living tokens for forgeries. Values are compared as
// texts.
type Installation struct {
	Epoch    string // zero of the time in ids
	Layout   string // of ids
	TokenKey string // fingerprint of the configured tag key, or KeysInRedis
}

// Complete reports whether no value is empty.
func (i Installation) Complete() bool { return i.Epoch != "" && i.Layout != "" && i.TokenKey != "" }

// Difference is a value of an [Installation] whose configured and recorded values differ.
type Difference struct{ Name, Configured, Recorded string }

// Differences returns the differences between i, which is configured, and recorded. A value that is
// not recorded is no difference.
func (i Installation) Differences(recorded Installation) []Difference {
	var list []Difference
	for _, d := range []Difference{
		{"epoch", i.Epoch, recorded.Epoch}, {"layout", i.Layout, recorded.Layout}, {"token key", i.TokenKey, recorded.TokenKey},
	} {
		if d.Recorded != "" && d.Configured != d.Recorded {
			list = append(list, d)
		}
	}
	return list
}

// MismatchError is the error for a gateway whose configuration differs from that of the
// installation. Such a gateway must neither validate nor issue tokens.
type MismatchError struct {
	Differences []Difference // at least one
	Keys        string       // the keys of the recorded values
}

func (e *MismatchError) Error() string {
	var parts []string
	for _, d := range e.Differences {
		parts = append(parts, fmt.Sprintf("the %s is configured as %q, but this installation was begun with %q", d.Name, d.Configured, d.Recorded))
	}
	return fmt.Sprintf("%s (recorded in %s of Redis)", strings.Join(parts, "; "), e.Keys)
}

// Mismatch returns a [*MismatchError] if i, which is configured, differs from what is recorded.
func (s *Store) Mismatch(i, recorded Installation) error {
	if list := i.Differences(recorded); len(list) > 0 {
		return &MismatchError{Differences: list, Keys: s.sharedKey("epoch") + " and " + s.sharedKey("installation")}
	}
	return nil
}

// Claim records the values of i, or compares them with the recorded ones. The error is a
// [*MismatchError] if they differ, and an [*Error] if Redis is unavailable.
func (s *Store) Claim(ctx context.Context, i Installation) error {
	recorded, err := s.claim(ctx, i.Epoch, i.Layout, i.TokenKey)
	if err != nil {
		return err
	}
	return s.Mismatch(i, recorded)
}

// Recorded returns the recorded values; a value that is not recorded is empty. Only a primary
// replies.
func (s *Store) Recorded(ctx context.Context) (Installation, error) { return s.claim(ctx) }

func (s *Store) claim(ctx context.Context, args ...any) (Installation, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	keys := []string{s.sharedKey("epoch"), s.sharedKey("installation"), s.sharedKey("w"), s.sharedKey("tagkey")}
	reply, err := claimScript.Run(ctx, s.client, keys, args...).StringSlice()
	if err == nil && len(reply) != 3 {
		err = fmt.Errorf("a script returned %d values instead of 3", len(reply))
	}
	if err != nil {
		return Installation{}, failure("compare the epoch, the layout and the token key", err)
	}
	return Installation{Epoch: reply[0], Layout: reply[1], TokenKey: reply[2]}, nil
}

// installation reads the recorded values in one round trip, to which only a primary replies. A
// value that is not recorded is empty.
func (s *Store) installation(ctx context.Context) (Installation, error) {
	pipe := s.client.Pipeline()
	epoch := pipe.GetEx(ctx, s.sharedKey("epoch"), -1)
	rest := pipe.HMGet(ctx, s.sharedKey("installation"), "layout", "token_key")
	_, err := pipe.Exec(ctx)
	if err != nil && err != redis.Nil { //nolint:errorlint // see Store.load
		return Installation{}, err
	}
	if err := rest.Err(); err != nil {
		return Installation{}, err
	}
	i := Installation{Epoch: epoch.Val()}
	if fields := rest.Val(); len(fields) == 2 {
		i.Layout, _ = fields[0].(string)
		i.TokenKey, _ = fields[1].(string)
	}
	return i, nil
}
