package tokens

import (
	"context"
	"errors"
	"fmt"
	"time"

	"snowgate/idgen"
	"snowgate/internal/deadline"
)

const (
	// countStep is about how long one call of [Service.CountRule] takes.
	countStep = time.Second
	// countTimeout limits one call of the scanner.
	countTimeout = 5 * time.Second
)

// ErrCursor is the error for a cursor that no earlier call returned.
var ErrCursor = errors.New("tokens: not a cursor of this count")

// Scanner iterates over the ids of the tokens that have a record.
type Scanner interface {
	// ScanIDs returns a few ids and the cursor of the next call, which is empty after the last id.
	// The first call has an empty cursor. ScanIDs may return an id twice, and may miss tokens that
	// are issued or end during the scan. The error is [ErrCursor] for an invalid cursor, and
	// matches [ErrUnavailable] for a failure of the store.
	ScanIDs(ctx context.Context, cursor string) (ids []idgen.ID, next string, err error)
}

// Coverage is the result of one call of [Service.CountRule].
type Coverage struct {
	Tokens int    // tokens with a record that the rule covers
	Seen   int    // tokens with a record that were examined
	Next   string // the cursor of the call that goes on; empty at the end
}

// CountRule counts the tokens with a record that r covers, by their ids; r must be for a worker or
// an instant. It writes nothing. It stops after about a second, and the caller continues with
// [Coverage.Next]; the sum of all calls is the count. Between two calls of the scanner it pauses
// for as long as the first one took. Errors are [ErrRule], [ErrCursor] or [ErrUnavailable].
func (s *Service) CountRule(ctx context.Context, r Rule, cursor string) (Coverage, error) {
	if r.Kind != RuleWorker && r.Kind != RuleBefore {
		return Coverage{}, fmt.Errorf("%w that can be counted: ids do not tell the client", ErrRule)
	}
	if s.cfg.Scanner == nil {
		return Coverage{}, fmt.Errorf("%w: this store cannot be scanned", ErrUnavailable)
	}
	found := Coverage{Next: cursor}
	covered := make(map[idgen.ID]struct{}) // a scan may return a token twice
	for began := time.Now(); ; {
		asked := time.Now()
		ids, next, err := s.scan(ctx, found.Next)
		if err != nil {
			return Coverage{}, err
		}
		found.Seen, found.Next = found.Seen+len(ids), next
		for _, id := range ids {
			if o, ok := s.origin(id); ok && r.covers(o) {
				covered[id] = struct{}{}
			}
		}
		found.Tokens = len(covered)
		if found.Next == "" || time.Since(began) >= countStep {
			return found, nil
		}
		if err := deadline.Sleep(ctx, time.Since(asked)); err != nil {
			return Coverage{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

func (s *Service) scan(ctx context.Context, cursor string) ([]idgen.ID, string, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	return s.cfg.Scanner.ScanIDs(ctx, cursor)
}

// covers reports whether r, which is for a worker or an instant, matches tokens of that origin.
func (r Rule) covers(o Origin) bool {
	if r.Kind == RuleWorker && (o.Worker != r.Worker || o.Minted.Before(r.From)) {
		return false
	}
	return o.Minted.Before(r.Until)
}
