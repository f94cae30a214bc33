package tokens

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// RuleKind says what a [Rule] matches.
type RuleKind string

// The kinds of rules that this version knows. There is no rule for a single token, which is revoked
// by deleting its record. A later version may write rules of other kinds, see [Rule.Known].
const (
	// RuleClient matches every token of Client whose generation is less than Generation. It does
	// not depend on any clock.
	RuleClient RuleKind = "client"
	// RuleWorker matches every token that Worker minted in [From, Until).
	RuleWorker RuleKind = "worker"
	// RuleBefore matches every token minted before Until.
	RuleBefore RuleKind = "before"
)

// RuleGrace is a margin. It is part of [Rule.End], because a gateway may issue tokens before it has
// learned of the rule. Gateways also keep a rule, and write its generation into new tokens, for
// RuleGrace after its End, because their clocks differ. A store must keep a rule until RuleGrace
// after its End.
const RuleGrace = time.Minute

// Rule revokes many tokens at once. It is a value; its instants have millisecond precision. Use
// [ClientRule], [WorkerRule] or [BeforeRule] to make one.
type Rule struct {
	// ID depends only on what the rule matches, so that writing the same rule twice gives one rule.
	ID   string
	Kind RuleKind

	Client     string // RuleClient
	Generation uint64 // RuleClient; set by the [RuleStore]: the revision of the write
	Worker     int64  // RuleWorker: the number as idgen.Layout.WorkerIndex counts
	From       time.Time
	Until      time.Time

	// End is the first instant at which no token that the rule matches can be alive: Until, or the
	// time of writing for a RuleClient, plus the longest lifetime that any gateway ever permitted,
	// plus [RuleGrace], rounded up to a millisecond. The [RuleStore] sets it.
	End time.Time
	// Created is when the rule was written, by the clock of the [RuleStore]. By is who wrote it,
	// and Why is the reason given. A store may drop these three for a RuleClient.
	Created time.Time
	By, Why string

	// Stored is the stored form of a rule of a kind that this version does not know, so that such a
	// rule can be written back unchanged. It is empty for all other rules.
	Stored string
}

// anyWorker is the Worker of a rule of an unknown kind that does not name one.
const anyWorker = -1

// UnknownRule returns a rule of a kind that this version does not know, as a store found it under
// id. What it matches was minted in [from, until), and by worker, unless worker is negative.
// Instants are rounded outwards to a millisecond.
func UnknownRule(id string, kind RuleKind, worker int64, from, until time.Time, stored string) Rule {
	return Rule{ID: id, Kind: kind, Worker: max(worker, anyWorker), From: floorMilli(from), Until: ceilMilli(until), Stored: stored}
}

// Known reports whether this version knows the kind of r. If it does not, it knows only which
// tokens r cannot revoke: those that were minted outside of From and Until, or by another worker.
func (r Rule) Known() bool {
	return r.Kind == RuleClient || r.Kind == RuleWorker || r.Kind == RuleBefore
}

// mayMatch reports whether a rule of an unknown kind may revoke tokens of an origin.
func (r Rule) mayMatch(o Origin) bool {
	minted := o.Minted.UnixMilli()
	return (r.Worker == anyWorker || r.Worker == o.Worker) && r.From.UnixMilli() <= minted && minted < r.Until.UnixMilli()
}

var (
	// ErrRule is the error for a rule that is not valid; the text says why.
	ErrRule = errors.New("tokens: not a revocation rule")
	// ErrRuleInFuture is the error for a rule with an instant in the future by the clock of the
	// store: it would revoke tokens that do not exist yet.
	ErrRuleInFuture = errors.New("tokens: a revocation rule cannot reach into the future")
)

// ClientRule returns the rule that revokes all tokens of a client.
func ClientRule(client string) Rule {
	return Rule{ID: "client-" + client, Kind: RuleClient, Client: client}
}

// WorkerRule returns the rule that revokes all tokens that a worker minted in [from, until). from
// is rounded down to a millisecond, until is rounded up.
func WorkerRule(worker int64, from, until time.Time) Rule {
	r := Rule{Kind: RuleWorker, Worker: worker, From: floorMilli(from), Until: ceilMilli(until)}
	r.ID = "worker-" + strconv.FormatInt(worker, 10) + "-" + milliText(r.From) + "-" + milliText(r.Until)
	return r
}

// BeforeRule returns the rule that revokes all tokens minted before an instant, which is rounded up
// to a millisecond.
func BeforeRule(instant time.Time) Rule {
	r := Rule{Kind: RuleBefore, Until: ceilMilli(instant)}
	r.ID = "before-" + milliText(r.Until)
	return r
}

func floorMilli(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()) }
func ceilMilli(t time.Time) time.Time  { return floorMilli(t.Add(time.Millisecond - time.Nanosecond)) }
func milliText(t time.Time) string     { return strconv.FormatInt(t.UnixMilli(), 10) }

// RuleSet is the state of all rules at one time.
type RuleSet struct {
	// Revision counts the changes of what the gateways share. Sets with the same revision hold the
	// same rules, unless the store has lost writes.
	Revision uint64
	// Longest is the longest lifetime of a token that was ever permitted. It never decreases. 0:
	// not recorded yet.
	Longest time.Duration
	// Rules holds one rule for each ID, in any order.
	Rules []Rule
}

// Check returns why r cannot be written at the instant now of the store's clock, as an error that
// wraps [ErrRule] or [ErrRuleInFuture].
func (r Rule) Check(now time.Time) error {
	var err error
	switch r.Kind {
	case RuleClient:
		err = r.wellFormed(r.Client != "", "a rule for a client names one", ClientRule(r.Client))
	case RuleWorker:
		err = r.wellFormed(r.Worker >= 0 && r.From.Before(r.Until), "a rule for a worker names it by a number from 0 up, and two instants of which the first is earlier",
			WorkerRule(r.Worker, r.From, r.Until))
	case RuleBefore:
		err = r.wellFormed(r.Until.UnixMilli() > 0, "a rule for all workers names an instant after 1970", BeforeRule(r.Until))
	default:
		err = fmt.Errorf("%w: the kind %q is unknown", ErrRule, string(r.Kind))
	}
	if err == nil && r.Until.After(ceilMilli(now)) {
		return fmt.Errorf("%w: it ends at %s, and now is %s", ErrRuleInFuture, r.Until.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339Nano))
	}
	return err
}

// wellFormed checks ok, the condition of a kind, and that r is equal to made, the rule with the
// same content that its constructor returns.
func (r Rule) wellFormed(ok bool, otherwise string, made Rule) error {
	if !ok {
		return fmt.Errorf("%w: %s", ErrRule, otherwise)
	}
	if r.ID != made.ID || r.Client != made.Client || r.Worker != made.Worker || !r.From.Equal(made.From) || !r.Until.Equal(made.Until) {
		return fmt.Errorf("%w: its id or its instants are not those of %q", ErrRule, made.ID)
	}
	return nil
}
