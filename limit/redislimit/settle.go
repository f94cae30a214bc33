package redislimit

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/panics"
)

//go:embed lua/charge.lua
var chargeLua string

// chargeScript need not work while Redis is full, because then no token can be issued.
var chargeScript = redis.NewScript(chargeLua)

// startSettling starts to settle an account unless a settlement is in flight. It returns false if
// there is none to wait for. The caller holds the lock of p.
func (l *Limiter) startSettling(p *shard, a *account, client string) bool {
	if a.settled != nil {
		return true
	}
	if p.closed {
		return false
	}
	a.settled = make(chan struct{})
	s := settlement{
		limiter: l, shard: p, account: a, client: client,
		uses: a.unsettled, worth: time.Duration(a.unsettled) * a.rate.Interval(), maxLead: maxLead(a.rate),
	}
	l.running.Go(func() { defer panics.Catch(panics.Limits, nil); s.run() })
	return true
}

// settlement charges uses of one account.
type settlement struct {
	limiter        *Limiter
	shard          *shard
	account        *account
	client         string
	uses           int
	worth, maxLead time.Duration
}

func (s *settlement) run() {
	sent := s.limiter.now()
	ahead, err := s.charge()
	now := s.limiter.now()
	if err != nil && s.limiter.work.Err() == nil {
		s.limiter.config.Fallback(ReasonError)
	}

	s.shard.Lock()
	defer s.shard.Unlock()
	a := s.account
	close(a.settled)
	a.settled = nil
	if err != nil {
		a.pause(now + s.limiter.config.Pause)
		return
	}
	a.update(s.uses, sent, now, ahead)
	a.slow = now-sent > s.limiter.config.MaxWait
}

// charge returns how far ahead the client's arrival time is with the uses.
func (s *settlement) charge() (_ time.Duration, err error) {
	defer panics.Into(panics.Limits, &err)
	ctx, cancel := context.WithTimeout(s.limiter.work, s.limiter.config.Timeout)
	defer cancel()
	key := s.limiter.config.Prefix + ":l:" + s.client
	ahead, err := chargeScript.Run(ctx, s.limiter.config.Redis, []string{key}, microseconds(s.worth), microseconds(s.maxLead)).Int64()
	return time.Duration(ahead) * time.Microsecond, err
}

// microseconds rounds up.
func microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}
