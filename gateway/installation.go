package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"snowgate/config"
	"snowgate/internal/deadline"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// InstallationOf returns the part of cfg that all gateways must agree on: epoch, layout and token
// key.
func InstallationOf(cfg config.Config) redisstore.Installation {
	i := redisstore.Installation{
		Epoch: cfg.Epoch.UTC().Format(time.RFC3339Nano), Layout: cfg.IDLayout.String(), TokenKey: redisstore.KeysInRedis,
	}
	if cfg.TokenKey.IsSet() {
		i.TokenKey = tokens.Key(cfg.TokenKey.Bytes()).Fingerprint()
	}
	return i
}

// installation compares what this gateway is configured with to what Redis has recorded: the epoch,
// the layout and the token key, on which all gateways of one Redis must agree. It is safe for
// concurrent use.
type installation struct {
	*setup
	store      *redisstore.Store
	configured redisstore.Installation
	blank      chan struct{} // Redis has lost what all gateways share

	made  atomic.Bool           // it was found to be ours, or made ours
	other atomic.Pointer[error] // it is another one since; nil: it is not
}

func newInstallation(s *setup, store *redisstore.Store) *installation {
	return &installation{setup: s, store: store, configured: InstallationOf(s.cfg), blank: make(chan struct{}, 1)}
}

// errUnclaimed refuses every decision until the installation has been compared.
var errUnclaimed = fmt.Errorf("%w: epoch, layout and token key have not been compared with those in Redis yet", tokens.ErrUnavailable)

// unfit returns why this gateway must not decide: it would take the tokens of others for forgeries.
func (c *installation) unfit() error {
	if !c.made.Load() {
		return errUnclaimed
	}
	if other := c.other.Load(); other != nil {
		return *other
	}
	return nil
}

// changed keeps what a probe of Redis found out, nil if all is well, and reports whether that is
// news.
func (c *installation) changed(mismatch error) bool {
	if mismatch == nil {
		return c.other.Swap(nil) != nil
	}
	err := fmt.Errorf("%w: %w", tokens.ErrUnavailable, mismatch)
	return c.other.Swap(&err) == nil
}

// noticeProbe is called after every probe of Redis.
func (c *installation) noticeProbe(h redisstore.Health) {
	if !h.Reachable {
		return
	}
	if h.Empty {
		select {
		case c.blank <- struct{}{}:
		default: // it is on its way already
		}
	}
	if c.made.Load() { // before that, claim compares
		_ = c.compare(h.Installation) // it is logged
	}
}

// compare notes whether what is recorded is what this gateway is configured with; if not, it
// returns a [*redisstore.MismatchError].
func (c *installation) compare(recorded redisstore.Installation) error {
	err := c.store.Mismatch(c.configured, recorded)
	switch news := c.changed(err); {
	case news && err != nil:
		c.log.Error().Err(wayOut(err)).Msg("the installation in Redis has changed: this gateway is not ready, and responds with 503")
	case news:
		c.log.Info().Msg("the installation in Redis is the configured one again")
	}
	return err
}

// ruleFollower keeps the revocation rules current. A change of the installation comes with a rule
// that revokes all earlier tokens. A gateway of the earlier installation must notice the change
// before it applies the rule, so that it responds with 503; only gateways of the new one respond
// with 401.
type ruleFollower struct {
	*tokens.Rules
	installation *installation
}

// Refresh implements [redisstore.Follower].
func (f *ruleFollower) Refresh(ctx context.Context) error {
	recorded, err := f.installation.store.Recorded(ctx)
	if err == nil {
		err = f.installation.compare(recorded)
	}
	if err != nil {
		return err
	}
	return f.Rules.Refresh(ctx)
}

// claim records epoch, layout and token key in Redis or compares them, and does not give up while
// Redis is away. A difference is a [*ConfigError].
func (c *installation) claim(ctx context.Context) error {
	for {
		err := c.store.Claim(ctx, c.configured)
		if _, mismatch := errors.AsType[*redisstore.MismatchError](err); mismatch {
			return &ConfigError{wayOut(err)}
		}
		if err == nil {
			c.made.Store(true)
			return nil
		}
		if deadline.Sleep(ctx, claimPause) != nil {
			return nil //nolint:nilerr // asked to stop before Redis was there
		}
	}
}

// wayOut adds to a mismatch what can be done about it.
func wayOut(err error) error {
	mismatch, ok := errors.AsType[*redisstore.MismatchError](err)
	if !ok {
		return err
	}
	var set []string
	for _, d := range mismatch.Differences {
		switch d.Name {
		case "epoch":
			set = append(set, config.Prefix+"EPOCH="+d.Recorded)
		case "layout":
			set = append(set, config.Prefix+"ID_LAYOUT="+d.Recorded)
		case "token key":
			if d.Recorded == redisstore.KeysInRedis {
				set = append(set, "no "+config.Prefix+"TOKEN_KEY")
			} else {
				set = append(set, "the "+config.Prefix+"TOKEN_KEY that the other gateways have")
			}
		}
	}
	return fmt.Errorf("%w; give this gateway %s, or change the whole installation with snowgate ids rebase", err, strings.Join(set, " and "))
}

// restore gives a Redis that has lost its data the epoch and the layout back, so that gateways
// which start later make and read ids as this one does. The rest, tag keys included, is given back
// by the feed, which notices the loss by itself. It returns when ctx ends, or with the error that
// comes out of refused if no worker number can be had. If another gateway was faster and has
// recorded something else, noticeProbe notices.
func (c *installation) restore(ctx context.Context, refused <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-refused:
			return err
		case <-c.blank:
		}
		c.log.Info().Msg("Redis knows nothing of this deployment, it is new or has lost its data: it is told")
		if err := c.claim(ctx); err != nil {
			c.log.Error().Err(err).Msg("another gateway has told Redis something else")
		}
	}
}
