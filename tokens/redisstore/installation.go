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

// claimScript passes while Redis is full: it begins with a write that takes no memory.
var claimScript = redis.NewScript(claimLua)

// KeysInRedis is the [Installation.TokenKey] of an installation whose tag keys are kept in Redis.
const KeysInRedis = "redis"

// Installation is what all gateways of an installation must agree on: with other values a gateway
// misreads ids, or takes living tokens for forgeries. Each value is compared as text.
type Installation struct {
	Epoch    string // zero of the time in ids
	Layout   string // of ids
	TokenKey string // fingerprint of the configured tag key, or KeysInRedis
}

// Complete reports whether every value is there.
func (i Installation) Complete() bool { return i.Epoch != "" && i.Layout != "" && i.TokenKey != "" }

// Difference is a value of an [Installation] that is configured otherwise than recorded.
type Difference struct{ Name, Configured, Recorded string }

// Differences returns what differs between i, which is configured, and what is recorded. A value
// that is not recorded is no difference.
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

// MismatchError says that a gateway is configured otherwise than the installation that it would
// join. It must neither decide nor issue.
type MismatchError struct {
	Differences []Difference // at least one
	Keys        string       // where it is recorded
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

// Claim records what all gateways agree on, or checks it against what is recorded:
// [*MismatchError] if they differ, [*Error] if Redis could not be asked.
func (s *Store) Claim(ctx context.Context, i Installation) error {
	recorded, err := s.claim(ctx, i.Epoch, i.Layout, i.TokenKey)
	if err != nil {
		return err
	}
	return s.Mismatch(i, recorded)
}

// Recorded returns what is recorded, with empty values for the rest. Only a primary answers.
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

// installation reads the recorded values in one round trip, which only a primary answers. A value
// that is not recorded is empty.
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
