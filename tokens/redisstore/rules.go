package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"snowgate/tokens"
)

const (
	graceMilli = int64(tokens.RuleGrace / time.Millisecond)

	// unknownLongest is the lifetime that rules must outlast if no gateway has recorded one. It is
	// longer than any lifetime in a configuration.
	unknownLongest = 366 * 24 * time.Hour

	// maxExact is the greatest integer up to which numbers in Lua are exact.
	maxExact = 1 << 53

	// restoreAtOnce is the maximum number of rules for one script, so that it does not block Redis
	// for long.
	restoreAtOnce = 500
)

// The prefixes of the fields of {sg}:rev that are rules.
const (
	clientField   = "g:" // and the client: generation:end
	intervalField = "i:" // and the rule's id: an intervalDocument
)

// intervalDocument is the stored form of a rule for a worker or an instant. Instants are Unix
// milliseconds. The scripts write the first two members and read the first one, so these must stay
// first.
type intervalDocument struct {
	End     int64           `json:"end"`
	Created int64           `json:"created"`
	Kind    tokens.RuleKind `json:"kind"`
	Worker  int64           `json:"worker,omitempty"`
	From    int64           `json:"from,omitempty"`
	Until   int64           `json:"until"`
	By      string          `json:"by,omitempty"`
	Why     string          `json:"why,omitempty"`
}

// encodeInterval returns the field and the value of a rule that is not a RuleClient.
func encodeInterval(r tokens.Rule) (field, value string, err error) {
	if !r.Known() {
		_, rest, ok := strings.Cut(r.Stored, ",")
		if !ok {
			return "", "", fmt.Errorf("%w: the kind %q is unknown", tokens.ErrRule, string(r.Kind))
		}
		return intervalField + r.ID, `{"end":` + strconv.FormatInt(r.End.UnixMilli(), 10) + "," + rest, nil
	}
	d := intervalDocument{Kind: r.Kind, Worker: r.Worker, Until: r.Until.UnixMilli(), By: r.By, Why: r.Why}
	if r.Kind == tokens.RuleWorker {
		d.From = r.From.UnixMilli()
	}
	if !r.End.IsZero() {
		d.End = r.End.UnixMilli()
	}
	if !r.Created.IsZero() {
		d.Created = r.Created.UnixMilli()
	}
	text, err := json.Marshal(d)
	return intervalField + r.ID, string(text), err
}

// decodeRule decodes a field of {sg}:rev that is a rule.
func decodeRule(field, value string) (tokens.Rule, error) {
	if client, ok := strings.CutPrefix(field, clientField); ok {
		return decodeGeneration(client, value)
	}
	return decodeInterval(strings.TrimPrefix(field, intervalField), value)
}

func decodeGeneration(client, value string) (tokens.Rule, error) {
	generation, end, found := strings.Cut(value, ":")
	g, err1 := parseExact(generation)
	e, err2 := parseExact(end)
	if !found || err1 != nil || err2 != nil || client == "" || g == 0 {
		return tokens.Rule{}, errors.New("it is not a generation and an end")
	}
	r := tokens.ClientRule(client)
	r.Generation, r.End = g, time.UnixMilli(int64(e))
	return r, nil
}

func decodeInterval(id, value string) (tokens.Rule, error) {
	var d intervalDocument
	if err := json.Unmarshal([]byte(value), &d); err != nil {
		return tokens.Rule{}, err
	}
	var r tokens.Rule
	switch d.Kind {
	case tokens.RuleWorker:
		r = tokens.WorkerRule(d.Worker, time.UnixMilli(d.From), time.UnixMilli(d.Until))
	case tokens.RuleBefore:
		r = tokens.BeforeRule(time.UnixMilli(d.Until))
	default:
		return decodeUnknown(id, value, &d)
	}
	if r.ID != id {
		return tokens.Rule{}, fmt.Errorf("its content is that of %q", r.ID)
	}
	if d.End < d.Until || d.End > maxExact {
		return tokens.Rule{}, fmt.Errorf("its end %d is not after what it matches", d.End)
	}
	r.End, r.Created, r.By, r.Why = time.UnixMilli(d.End), time.UnixMilli(d.Created), d.By, d.Why
	return r, r.Check(r.Until)
}

// decodeUnknown decodes a rule of a kind that a later version may know. Its limits must be valid,
// because they say about which tokens the gateway cannot decide.
func decodeUnknown(id, value string, d *intervalDocument) (tokens.Rule, error) {
	var bounds struct {
		Worker *int64 `json:"worker"`
	}
	if err := json.Unmarshal([]byte(value), &bounds); err != nil {
		return tokens.Rule{}, err
	}
	worker := int64(-1)
	if bounds.Worker != nil {
		worker = *bounds.Worker
	}
	switch {
	case d.Kind == "" || d.Kind == tokens.RuleClient || id == "":
		return tokens.Rule{}, fmt.Errorf("%q is not the kind of a rule", string(d.Kind))
	case !strings.HasPrefix(value, fmt.Sprintf(`{"end":%d,`, d.End)):
		return tokens.Rule{}, fmt.Errorf("its kind %q is unknown, and it does not begin with its end", string(d.Kind))
	case d.Until <= 0 || d.From > d.Until || d.End < d.Until || d.End > maxExact || bounds.Worker != nil && worker < 0:
		return tokens.Rule{}, fmt.Errorf("its kind %q is unknown, and its bounds make no sense", string(d.Kind))
	}
	r := tokens.UnknownRule(id, d.Kind, worker, time.UnixMilli(max(d.From, 0)), time.UnixMilli(d.Until), value)
	r.End, r.Created, r.By, r.Why = time.UnixMilli(d.End), time.UnixMilli(d.Created), d.By, d.Why
	return r, nil
}

// parseExact parses a number as the scripts write it: decimal, without sign or
// leading zeros, and not rounded by Lua.
func parseExact(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > maxExact || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return n, nil
}

// LoadRules implements [tokens.RuleStore] with one script, which only a primary runs. If fields
// cannot be decoded, the error names them, and the result has all other rules, which the caller
// should merge.
func (s *Store) LoadRules(ctx context.Context) (tokens.RuleSet, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	reply, err := s.revision(ctx, s.client, ruleLoadScript)
	if err != nil {
		return tokens.RuleSet{}, failure("read the revocation rules", err)
	}
	set, err := decodeRules(reply)
	s.learnLongest(set.Longest)
	if err != nil {
		return set, failure("read the revocation rules", err)
	}
	return set, nil
}

// decodeRules decodes the reply of rule_load: the time, then fields and values in turn. It ignores
// fields of other kinds.
func decodeRules(reply []string) (tokens.RuleSet, error) {
	var set tokens.RuleSet
	if len(reply)%2 == 0 {
		return set, fmt.Errorf("a script returned %d values", len(reply))
	}
	milli, err := parseExact(reply[0])
	if err != nil {
		return set, fmt.Errorf("the time of Redis: %w", err)
	}
	now := time.UnixMilli(int64(milli))
	var damaged []error
	for pair := range slices.Chunk(reply[1:], 2) {
		if err := decodeField(&set, now, pair[0], pair[1]); err != nil {
			damaged = append(damaged, fmt.Errorf("the field %q is damaged: %w", pair[0], err))
		}
	}
	return set, errors.Join(damaged...)
}

func decodeField(set *tokens.RuleSet, now time.Time, field, value string) error {
	var err error
	switch {
	case field == "v":
		set.Revision, err = parseExact(value)
	case field == "m":
		var milli uint64
		milli, err = parseExact(value)
		set.Longest = time.Duration(min(milli, uint64(unknownLongest.Milliseconds()))) * time.Millisecond
	case strings.HasPrefix(field, clientField), strings.HasPrefix(field, intervalField):
		var r tokens.Rule
		r, err = decodeRule(field, value)
		if err == nil && r.End.Add(tokens.RuleGrace).After(now) {
			set.Rules = append(set.Rules, r)
		}
	}
	return err
}

// AddRule implements [tokens.RuleStore] with one script, and so one write, however many tokens it
// revokes. It works while Redis is full, and removes a few rules that have ended. It does not store
// By and Why of a RuleClient.
func (s *Store) AddRule(ctx context.Context, r tokens.Rule) (tokens.Rule, uint64, error) {
	const op = "write a revocation rule"
	// The script checks by the clock of Redis whether the rule reaches into the future.
	if err := r.Check(time.UnixMilli(maxExact)); err != nil {
		return tokens.Rule{}, 0, err
	}
	field, rest, last := clientField+r.Client, "", int64(0)
	if r.Kind != tokens.RuleClient {
		r.End, r.Created = time.Time{}, time.Time{}
		var value string
		var err error
		if field, value, err = encodeInterval(r); err != nil {
			return tokens.Rule{}, 0, failure(op, err)
		}
		last = r.Until.UnixMilli()
		rest = strings.TrimPrefix(value, `{"end":0,"created":0,`)
	}
	var reply []string
	err := s.durably(ctx, "", func(ctx context.Context, rdb server) (err error) {
		reply, err = s.change(ctx, rdb, ruleAddScript, 6, field, last, rest)
		return err
	})
	if err != nil {
		return tokens.Rule{}, 0, failure(op, err)
	}
	stored, revision, err := added(r, field, reply)
	if err != nil && !errors.Is(err, tokens.ErrRuleInFuture) {
		return tokens.Rule{}, 0, failure(op, err)
	}
	return stored, revision, err
}

// added decodes the reply of rule_add for r.
func added(r tokens.Rule, field string, reply []string) (tokens.Rule, uint64, error) {
	status, value := reply[0], reply[4]
	revision, err1 := parseExact(reply[1])
	end, err2 := parseExact(reply[2])
	now, err3 := parseExact(reply[3])
	if err := errors.Join(err1, err2, err3); err != nil {
		return tokens.Rule{}, 0, err
	}
	if status == "future" {
		return tokens.Rule{}, 0, r.Check(time.UnixMilli(int64(now)))
	}
	if r.Kind == tokens.RuleClient {
		value += ":" + reply[2]
	}
	stored, err := decodeRule(field, value)
	if err != nil {
		return tokens.Rule{}, 0, err
	}
	if r.Kind == tokens.RuleClient {
		stored.Created = time.UnixMilli(int64(now))
	}
	stored.End = time.UnixMilli(int64(end))
	return stored, revision, nil
}

// RestoreRules implements [tokens.RuleStore], with a few hundred rules for each script. Only the
// last script raises the revision. If a gateway stops before that, other gateways write back the
// rest.
func (s *Store) RestoreRules(ctx context.Context, set tokens.RuleSet) error {
	s.learnLongest(set.Longest)
	var args []any
	for _, r := range set.Rules {
		field, value := clientField+r.Client, strconv.FormatUint(r.Generation, 10)
		if r.Kind != tokens.RuleClient {
			var err error
			if field, value, err = encodeInterval(r); err != nil {
				return failure("give revocation rules back", err)
			}
		}
		args = append(args, field, r.End.UnixMilli(), value)
		if len(args) == 3*restoreAtOnce {
			if err := s.restore(ctx, 0, args); err != nil {
				return err
			}
			args = args[:0]
		}
	}
	return s.restore(ctx, set.Revision, args)
}

func (s *Store) restore(ctx context.Context, revision uint64, rules []any) error {
	return s.write(ctx, "give revocation rules back", ruleRestoreScript, append([]any{revision}, rules...)...)
}

// RecordLifetime records that tokens may live for ttl. It must succeed before the first such token
// is issued, because rules end when no token that they match can be alive, and older tokens are
// refused without a look-up. The longest recorded lifetime counts.
func (s *Store) RecordLifetime(ctx context.Context, ttl time.Duration) error {
	return s.RestoreRules(ctx, tokens.RuleSet{Longest: ttl})
}

// learnLongest remembers the longest lifetime that was read, so that rules do not end too early if
// Redis loses it.
func (s *Store) learnLongest(ttl time.Duration) {
	milli := (ttl + time.Millisecond - 1).Milliseconds()
	for {
		known := s.longest.Load()
		if known >= milli || s.longest.CompareAndSwap(known, milli) {
			return
		}
	}
}
