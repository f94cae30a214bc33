package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"snowgate/config"
	"snowgate/gateway"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// rebaseBudget bounds everything that snowgate ids rebase asks Redis for, the walk over all tokens
// included.
const rebaseBudget = 10 * time.Minute

// runRebase changes epoch, layout or token key of a whole installation.
func runRebase(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("ids rebase")
	epoch := flags.String("epoch", "", "new epoch, as an RFC 3339 `instant` (default: the recorded one)")
	layout := flags.String("layout", "", "new layout of ids, such as time:41,worker:10,sequence:12 (default: the recorded one)")
	key := flags.Bool("token-key", false, "record SNOWGATE_TOKEN_KEY as the key of this installation, or, if it is not set, that Redis keeps the keys")
	dryRun := flags.Bool("dry-run", false, "say what would be done and what stands against it, and change nothing")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	if *epoch == "" && *layout == "" && !*key {
		return usageError{errors.New("ids rebase: nothing is to be changed: give -epoch, -layout or -token-key")}
	}
	cfg, err := config.Load(p.Environ)
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, rebaseBudget)
	defer cancel()
	if !cfg.RedisURL.IsSet() {
		return rebaseFile(p, cfg, *epoch, *layout, *key, *dryRun)
	}
	store, err := gateway.OpenStore(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	plan, err := planRebase(ctx, cfg, store, *epoch, *layout, *key)
	if err != nil {
		return err
	}
	plan.print(p.Stdout)
	if err := plan.refusal(); err != nil {
		return err
	}
	if *dryRun {
		fmt.Fprintln(p.Stdout, "Nothing was changed (-dry-run).")
		return nil
	}
	if err := store.Rebase(ctx, plan.change()); err != nil {
		return err
	}
	fmt.Fprintf(p.Stdout, "Done. Start the gateways anew with %s.\n", plan.settings())
	return nil
}

// rebase is a change of an installation that is about to be made.
type rebase struct {
	from, to redisstore.Installation
	old, new idgen.Scheme

	now     time.Time     // of Redis
	highest time.Time     // recorded ceiling
	longest time.Duration // that a token may live

	live     int       // tokens that have a record
	expires  time.Time // when the last of them does
	clashing int       // of them, whose id could be issued again while they live
	until    time.Time // when the last of those expires
}

// rebaseMargin is by how much a stamp may be ahead of the clock of Redis, and by how much a record
// outlives its token.
const rebaseMargin = redislease.Wait + time.Second

// planRebase looks at everything that the change depends on.
func planRebase(ctx context.Context, cfg config.Config, store *redisstore.Store, epoch, layout string, key bool) (*rebase, error) {
	r := new(rebase)
	var err error
	if r.from, err = store.Recorded(ctx); err != nil {
		return nil, err
	}
	if r.from.Epoch == "" || r.from.Layout == "" {
		return nil, fmt.Errorf("ids rebase: Redis has no installation under %sKEY_PREFIX=%s: there is nothing to change, start a gateway with the new values",
			config.Prefix, cfg.KeyPrefix)
	}
	r.to = r.from
	if key || r.from.TokenKey == "" {
		r.to.TokenKey = gateway.InstallationOf(cfg).TokenKey
	}
	if r.old, err = schemeOf(r.from.Epoch, r.from.Layout); err != nil {
		return nil, fmt.Errorf("ids rebase: what Redis has recorded: %w", err)
	}
	if r.new, err = newScheme(r.old, epoch, layout); err != nil {
		return nil, usageError{fmt.Errorf("ids rebase: %w", err)}
	}
	r.to.Epoch, r.to.Layout = r.new.Epoch().Format(time.RFC3339Nano), r.new.Layout().String()
	if r.to == r.from {
		return nil, usageError{errors.New("ids rebase: that is what is recorded already")}
	}
	err = r.survey(ctx, cfg, store)
	return r, err
}

// newScheme is old with another epoch or layout, if those are not empty.
func newScheme(old idgen.Scheme, epoch, layout string) (idgen.Scheme, error) {
	if epoch == "" {
		epoch = old.Epoch().Format(time.RFC3339Nano)
	}
	if layout == "" {
		layout = old.Layout().String()
	}
	return schemeOf(epoch, layout)
}

func schemeOf(epoch, layout string) (idgen.Scheme, error) {
	at, err := time.Parse(time.RFC3339Nano, epoch)
	if err != nil {
		return idgen.Scheme{}, fmt.Errorf("the epoch %q is not an instant such as 2026-01-01T00:00:00Z", epoch)
	}
	l, err := idgen.ParseLayout(layout)
	if err != nil {
		return idgen.Scheme{}, err
	}
	return idgen.NewScheme(l, at)
}

// survey reads the clock, the ceilings and the living tokens.
func (r *rebase) survey(ctx context.Context, cfg config.Config, store *redisstore.Store) (err error) {
	if r.now, err = store.Time(ctx); err != nil {
		return err
	}
	registry, err := redislease.Look(ctx, store.Client(), cfg.KeyPrefix)
	if err != nil {
		return err
	}
	r.highest = registry.Highest
	rules, err := store.LoadRules(ctx)
	if err != nil {
		return err
	}
	r.longest = max(rules.Longest, cfg.TokenMaxTTL)
	return store.EachToken(ctx, func(id idgen.ID, left time.Duration) { r.count(id, r.now.Add(left)) })
}

// count takes a living token into account.
func (r *rebase) count(id idgen.ID, expires time.Time) {
	r.live++
	r.expires = later(r.expires, expires)
	if at := r.new.Time(id); !at.Before(r.start()) && at.Before(expires.Add(rebaseMargin)) {
		r.clashing++
		r.until = later(r.until, expires.Add(rebaseMargin))
	}
}

// start is the earliest instant that an id of the new scheme can carry: all grants of a registry that
// begins now start above it.
func (r *rebase) start() time.Time { return r.now.Add(redislease.Wait + time.Millisecond) }

// issuing reports whether a gateway may be issuing.
func (r *rebase) issuing() bool { return r.highest.After(r.now) }

// refusal returns why the change is not to be made, nil if it is safe.
func (r *rebase) refusal() error {
	switch {
	case r.now.Before(r.new.Epoch()):
		return usageError{fmt.Errorf("ids rebase: the epoch %s is in the future", r.to.Epoch)}
	case !r.now.Before(r.new.Exhausts()):
		return usageError{fmt.Errorf("ids rebase: the time field of %s, counted from %s, was full on %s", r.to.Layout, r.to.Epoch, r.new.Exhausts().Format(time.DateOnly))}
	case r.highest.After(r.now.Add(redislease.Wait)):
		return fmt.Errorf("ids rebase: ids up to %s may have been issued, and the clock of Redis is behind that: wait until then, and try again", stamp(r.highest))
	case r.clashing > 0:
		return fmt.Errorf("ids rebase: the ids of %d living tokens would be issued again while they live: stop issuing, wait until %s, and try again, "+
			"or choose an earlier epoch", r.clashing, stamp(r.until))
	case r.issuing() && r.comingClash():
		return fmt.Errorf("ids rebase: ids that running gateways issue now would be issued again while their tokens live: stop all gateways, wait until %s, and try again, "+
			"or choose an earlier epoch", stamp(later(r.expires, r.highest).Add(rebaseMargin)))
	}
	return nil
}

// comingClash reports whether ids that are issued from now on, until the gateways have noticed the
// change, could be issued again before their tokens expire.
func (r *rebase) comingClash() bool {
	first := r.new.Time(r.old.First(r.now.Add(-rebaseMargin)))
	last := r.new.Time(r.old.First(later(r.highest, r.now.Add(redislease.Wait)).Add(time.Millisecond)) - 1)
	return !last.Before(r.start()) && first.Before(r.now.Add(r.longest+rebaseMargin))
}

// above reports whether every new id is above every old one.
func (r *rebase) above() bool {
	return r.new.First(r.start()) >= r.old.First(later(r.highest, r.now.Add(redislease.Wait)).Add(time.Millisecond))
}

// change is what to write.
func (r *rebase) change() redisstore.Change {
	rule := tokens.BeforeRule(r.now.Add(redislease.Wait).Truncate(time.Millisecond))
	rule.By, rule.Why = "snowgate ids rebase", "the installation was changed"
	return redisstore.Change{From: r.from, To: r.to, Scheme: r.new.Fingerprint(), Wait: redislease.Wait, Rule: rule}
}

// settings are the variables that the gateways need from now on.
func (r *rebase) settings() string {
	text := config.Prefix + "EPOCH=" + r.to.Epoch + " " + config.Prefix + "ID_LAYOUT=" + r.to.Layout
	if r.to.TokenKey == redisstore.KeysInRedis {
		return text + " and no " + config.Prefix + "TOKEN_KEY"
	}
	return text + " and the " + config.Prefix + "TOKEN_KEY with the fingerprint " + r.to.TokenKey
}

func (r *rebase) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, was, will string) { fmt.Fprintf(table, "%s\t%s\t%s\n", name, was, will) }
	row("", "recorded", "new")
	row("epoch", r.from.Epoch, r.to.Epoch)
	row("layout", r.from.Layout, r.to.Layout)
	row("token key", r.from.TokenKey, r.to.TokenKey)
	_ = table.Flush()
	if r.live > 0 {
		fmt.Fprintf(w, "%d tokens live, the last one until %s. Gateways with the new values refuse them (401): clients get new ones.\n", r.live, stamp(r.expires))
	} else {
		fmt.Fprintln(w, "No token lives.")
	}
	if r.issuing() {
		fmt.Fprintln(w, "Gateways are running. With the change they respond with 503, until they are started anew with the new values.")
	}
	if r.above() {
		fmt.Fprintln(w, "New ids sort above all old ones.")
	} else {
		fmt.Fprintln(w, "New ids do not sort above the old ones: those that were given to others need the old layout and epoch beside them.")
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// stamp writes an instant for people, in whole seconds, rounded up.
func stamp(t time.Time) string { return t.Add(time.Second - 1).UTC().Format(time.RFC3339) }

// rebaseFile changes the epoch or the layout of a gateway without Redis, whose tokens end with it.
func rebaseFile(p *Process, cfg config.Config, epoch, layout string, key, dryRun bool) error {
	if key {
		return usageError{errors.New("ids rebase: -token-key: a state file records no key; start the gateway with the new one")}
	}
	if cfg.StateFile == "" {
		return usageError{fmt.Errorf("ids rebase: neither %sREDIS_URL nor %sSTATE_FILE is set: nothing is recorded, start the gateway with the new values", config.Prefix, config.Prefix)}
	}
	old, err := idgen.HighWaterScheme(cfg.StateFile)
	if err != nil {
		return err
	}
	scheme, err := newScheme(old, epoch, layout)
	if err != nil {
		return usageError{fmt.Errorf("ids rebase: %w", err)}
	}
	fmt.Fprintf(p.Stdout, "recorded  %s\nnew       %s\n", old.Fingerprint(), scheme.Fingerprint())
	fmt.Fprintln(p.Stdout, "New ids may equal old ones. The tokens of old ones ended with their gateway; ids that were kept elsewhere must be told apart by when they were kept.")
	if dryRun {
		fmt.Fprintln(p.Stdout, "Nothing was changed (-dry-run).")
		return nil
	}
	if err := idgen.RebaseHighWater(cfg.StateFile, scheme); err != nil {
		return err
	}
	fmt.Fprintf(p.Stdout, "Done. Start the gateway with %sEPOCH=%s %sID_LAYOUT=%s.\n",
		config.Prefix, scheme.Epoch().Format(time.RFC3339Nano), config.Prefix, scheme.Layout())
	return nil
}
