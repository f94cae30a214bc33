package redislease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/internal/redisscript"
)

// FreeOptions configures [Free].
type FreeOptions struct {
	Prefix string        // as in [Options]
	Worker int64         // the number, as an index over all datacenters; -1: all unused numbers
	Unused time.Duration // how long ago its lease must have ended
	DryRun bool          // only return what would be freed
}

// Kept is a number that an address keeps for ever.
type Kept struct {
	Number  int64
	Address string
}

// Free removes the assignment of numbers to addresses in a registry (see [Registered]), and returns
// the removed assignments in the order of the numbers. Other addresses get these numbers once all
// others are assigned. Free skips a number while its lease or its recorded ceiling is in the
// future; if o names such a number, the error wraps [ErrTaken]. A wrong choice cannot cause
// duplicate ids, because the next holder of a number starts above its ceiling.
func Free(ctx context.Context, rdb redis.Scripter, scheme idgen.Scheme, o FreeOptions) ([]Kept, error) {
	if o.Worker < -1 || o.Worker >= scheme.Layout().Workers() || o.Unused < 0 {
		return nil, fmt.Errorf("redislease: free worker number %d, unused for %v: %w", o.Worker, o.Unused, idgen.ErrFieldRange)
	}
	times := Options{Prefix: o.Prefix}.withDefaults()
	scripts := redisscript.NewRunner(rdb, registryKeys(times.Prefix))
	parts, err := scripts.Run(ctx, freeScript, scheme.Fingerprint(), times.Lead.Milliseconds(), times.Skew.Milliseconds(),
		o.Worker, o.Unused.Milliseconds(), flag(o.DryRun)).Slice()
	if err != nil {
		return nil, fmt.Errorf("redislease: free worker numbers at %s: %w", scripts.Keys()[3], err)
	}
	const head = 3 // status, wait, text
	if len(parts) < head || len(parts)%2 == 0 {
		return nil, fmt.Errorf("redislease: free.lua returned %d values", len(parts))
	}
	status, _ := parts[0].(string)
	wait, _ := parts[1].(int64)
	text, _ := parts[2].(string)
	if status != "freed" {
		return nil, notFreed(status, time.Duration(wait)*time.Millisecond, text, scheme, o, scripts.Keys())
	}
	var freed []Kept
	for i := head; i < len(parts); i += 2 {
		n, _ := parts[i].(int64)
		address, _ := parts[i+1].(string)
		freed = append(freed, Kept{n, address})
	}
	slices.SortFunc(freed, func(a, b Kept) int { return cmp.Compare(a.Number, b.Number) })
	return freed, nil
}

// notFreed returns the error that says why nothing was freed, and what to do.
func notFreed(status string, wait time.Duration, text string, scheme idgen.Scheme, o FreeOptions, keys []string) error {
	switch status {
	case "held":
		return fmt.Errorf("redislease: worker number %d is not freed: %w: it is leased by %s, for another %v unless renewed; stop that gateway first",
			o.Worker, ErrTaken, text, wait)
	case "unkept":
		return fmt.Errorf("redislease: worker number %d is free: no address keeps it at %s", o.Worker, keys[3])
	case "quarantine":
		return fmt.Errorf("redislease: no number is freed: %w for another %v; try again then", ErrQuarantine, wait)
	case "empty":
		return fmt.Errorf("redislease: there is no registry of worker numbers at %s; no gateway has taken a number there yet", keys[0])
	case "scheme":
		return fmt.Errorf("redislease: %w", &SchemeError{Ours: scheme.Fingerprint(), Recorded: text, Key: keys[0]})
	}
	return fmt.Errorf("redislease: free.lua returned status %q", status)
}
