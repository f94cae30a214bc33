package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// revocationCount is how many live tokens a revocation covers.
type revocationCount struct {
	LiveTokens int    `json:"live_tokens"`
	Seen       int    `json:"seen"` // tokens looked at
	Next       string `json:"next,omitempty"`
}

func (c *revocationCount) String() string {
	if c.LiveTokens == 1 {
		return "1 live token"
	}
	return fmt.Sprintf("%d live tokens", c.LiveTokens)
}

// countable reports whether the ids of tokens tell which the rule covers.
func (r revocationRequest) countable() bool { return r.Worker != nil || r.Before != "" }

// checkCount tells what is wrong with the flags of counting.
func checkCount(r revocationRequest, dry bool, within time.Duration) error {
	var faults []error
	if dry && r.Client != "" {
		faults = append(faults, errors.New("-dry-run: not with -client: ids do not tell the client, so its tokens cannot be counted"))
	}
	if within < 0 || dry && within == 0 {
		faults = append(faults, fmt.Errorf("-count-timeout %s: needs to be longer than 0", within))
	}
	return errors.Join(faults...)
}

// dryRun says what a revocation would cover. A count that did not end is an error.
func (c *adminClient) dryRun(ctx context.Context, p *Process, wanted revocationRequest, within time.Duration, output string) error {
	found, err := c.count(ctx, p, wanted, within)
	if err != nil {
		return err
	}
	if output == "json" {
		return printJSON(p, found)
	}
	fmt.Fprintf(p.Stdout, "would revoke: %s\nIt would cover %s. Nothing was written.\n", found.ID, found.Count)
	return nil
}

// countMade adds to a rule that is in force how many tokens it covers. The rule has its effect
// without the count, so a failure to count is only reported.
func (c *adminClient) countMade(ctx context.Context, p *Process, wanted revocationRequest, made *revocationMade, within time.Duration) {
	found, err := c.count(ctx, p, wanted, within)
	if err != nil {
		fmt.Fprintf(p.Stderr, "The rule is in force, but the tokens that it covers were not counted: %v\n", err)
		return
	}
	made.Count = found.Count
}

// count asks the gateway, step by step, how many live tokens a revocation covers. It says on standard
// error how far it is when that takes more than one step, of a second each.
func (c *adminClient) count(ctx context.Context, p *Process, wanted revocationRequest, within time.Duration) (revocationMade, error) {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var sum revocationCount
	query := url.Values{"dry_run": {"true"}}
	for {
		var step revocationMade
		_, err := c.call(bounded, http.MethodPost, "/revocations?"+query.Encode(), "", wanted, &step)
		switch {
		case bounded.Err() != nil && ctx.Err() == nil:
			return step, fmt.Errorf("the count did not end within %s: at least %s, of %d looked at; give -count-timeout more", within, &sum, sum.Seen)
		case err != nil:
			return step, err
		case step.Count == nil:
			return step, errors.New("the gateway does not count: it may be an older one")
		}
		sum.LiveTokens, sum.Seen = sum.LiveTokens+step.Count.LiveTokens, sum.Seen+step.Count.Seen
		if step.Count.Next == "" {
			step.Count = &sum
			return step, nil
		}
		fmt.Fprintf(p.Stderr, "counting: %s so far, of %d looked at\n", &sum, sum.Seen)
		query.Set("cursor", step.Count.Next)
	}
}
