package redislease

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Wait is how long a new registry with the defaults of [Options] gives out no number: the lead and
// the skew. No ceiling is further ahead of the clock of any Redis node.
const Wait = defaultLead + defaultSkew

// Survey is what a registry of worker numbers contains.
type Survey struct {
	Scheme  string    // fingerprint of its scheme; empty: there is no registry
	Highest time.Time // the highest ceiling of all numbers; zero: no number was ever leased
	Numbers int       // how many numbers were ever leased
}

// Look reads the registry of prefix; "" stands for "sg". It changes nothing.
func Look(ctx context.Context, rdb redis.Cmdable, prefix string) (Survey, error) {
	if prefix == "" {
		prefix = "sg"
	}
	key := "{" + prefix + "}:w"
	fields, err := rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return Survey{}, fmt.Errorf("redislease: read %s: %w", key, err)
	}
	var s Survey
	if meta := strings.SplitN(fields["meta"], " ", 4); len(meta) == 4 {
		s.Scheme = meta[3]
	}
	for field, value := range fields {
		if _, err := strconv.ParseUint(field, 10, 63); err != nil {
			continue // meta, counter, next
		}
		parts := strings.SplitN(value, " ", 6)
		if len(parts) < 3 {
			return s, fmt.Errorf("redislease: the record of worker number %s in %s is damaged", field, key)
		}
		ceiling, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return s, fmt.Errorf("redislease: the record of worker number %s in %s is damaged: %w", field, key, err)
		}
		s.Numbers++
		if at := time.UnixMilli(ceiling); at.After(s.Highest) {
			s.Highest = at
		}
	}
	return s, nil
}
