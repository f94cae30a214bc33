package integration_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

const (
	// noticeTime is how long a gateway may go on issuing after the clock of Redis
	// has jumped: it looks once a second.
	noticeTime = 4 * time.Second
	// followTime is how long a jump forward may take to be believed: five looks.
	followTime = 15 * time.Second
)

// timeScene is a scene on a Redis whose clock the test sets, with a second client
// whose tokens live for three hours instead of ten minutes.
type timeScene struct {
	*scene
	lasting gatewaytest.Credentials
	ids     *ledger
}

func newTimeScene(t *testing.T) *timeScene {
	t.Helper()
	s := &timeScene{
		scene:   &scene{t: t, redis: redistest.StartWithClock(t), upstream: gatewaytest.NewRecorder(t, "")},
		lasting: gatewaytest.NewClient("lasting", "orders.read", "token_ttl: 3h"),
		ids:     &ledger{seen: map[idgen.ID]bool{}},
	}
	s.client = gatewaytest.NewClient("worker", "orders.read", "introspect: true")
	s.client.YAML += s.lasting.YAML
	s.join(gatewaytest.Options{Env: []string{"SNOWGATE_TOKEN_TTL=10m"}})
	s.token = s.Token(s.lasting)
	return s
}

// besideInTime starts one more gateway on the same Redis.
func (s *timeScene) besideInTime() *timeScene {
	s.t.Helper()
	other := *s
	other.scene = s.beside(gatewaytest.Options{Env: []string{"SNOWGATE_TOKEN_TTL=10m", "SNOWGATE_WORKER_ID=2"}})
	return &other
}

// ledger has all ids issued in a deployment.
type ledger struct {
	mu   sync.Mutex
	seen map[idgen.ID]bool
	last map[string]idgen.ID // by gateway
}

// add checks that an id is new, and above those that its gateway issued before.
func (l *ledger) add(t *testing.T, gateway string, id idgen.ID) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[id] {
		t.Errorf("the id %s was issued twice", id)
	}
	if l.last == nil {
		l.last = make(map[string]idgen.ID)
	}
	if before := l.last[gateway]; id <= before {
		t.Errorf("the id %s came after %s", id, before)
	}
	l.seen[id], l.last[gateway] = true, id
}

// tryIssue asks for a token and says whether there was one. The response must be
// that, or the refusal that is due while time is not certain.
func (s *timeScene) tryIssue() bool {
	s.t.Helper()
	got := s.issue()
	if got.StatusCode != http.StatusOK {
		s.wantUnavailable("token", got)
		if !strings.Contains(got.Body, `"temporarily_unavailable"`) {
			s.t.Errorf("token: %d %s, want temporarily_unavailable", got.StatusCode, got.Body)
		}
		return false
	}
	var response struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(got.Body), &response); err != nil {
		s.t.Fatal(err)
	}
	id, err := idgen.Parse(strings.Split(response.AccessToken, "_")[1])
	if err != nil {
		s.t.Fatal(err)
	}
	s.ids.add(s.t, s.URL, id)
	return true
}

// stamp issues a token and returns by how much its id is ahead of the true time.
func (s *timeScene) stamp() time.Duration {
	s.t.Helper()
	if !s.tryIssue() {
		s.t.Fatal("no token is issued")
	}
	scheme, err := idgen.NewScheme(idgen.LayoutDefault, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		s.t.Fatal(err)
	}
	s.ids.mu.Lock()
	defer s.ids.mu.Unlock()
	return time.Until(scheme.Time(s.ids.last[s.URL]))
}

// wantJudged checks that a live token is good.
func (s *timeScene) wantJudged() {
	s.t.Helper()
	if got := s.call(); got.StatusCode != http.StatusOK {
		s.t.Errorf("a live token: %d %s, want 200", got.StatusCode, got.Body)
	}
	if got := s.introspect(); !strings.Contains(got.Body, `"active":true`) {
		s.t.Errorf("introspection of a live token: %d %s", got.StatusCode, got.Body)
	}
}

// wantIssuing checks what /readyz and the metrics say of the issuing: the gateway
// itself is ready in either case.
func (s *timeScene) wantIssuing(want bool) {
	s.t.Helper()
	got := s.Get("/readyz", "")
	var state struct {
		Ready   bool
		Issuing struct {
			Ready   bool
			Missing string
		}
	}
	if err := json.Unmarshal([]byte(got.Body), &state); err != nil {
		s.t.Fatalf("/readyz: %v in %s", err, got.Body)
	}
	if got.StatusCode != http.StatusOK || !state.Ready || state.Issuing.Ready != want {
		s.t.Errorf("/readyz: %d %s, want 200 with issuing %t", got.StatusCode, got.Body, want)
	}
	if !want && !strings.Contains(state.Issuing.Missing, "clock") {
		s.t.Errorf("/readyz: %s, want the clock named", got.Body)
	}
	healthy := map[bool]float64{true: 1, false: 0}[want]
	if got := s.Metrics().Sum("idgen_healthy"); got != healthy {
		s.t.Errorf("idgen_healthy is %v, want %v", got, healthy)
	}
}

// wantRefusing waits until nothing is issued any more.
func (s *timeScene) wantRefusing() {
	s.t.Helper()
	gatewaytest.Eventually(s.t, noticeTime, "issuing is refused", func() bool { return !s.tryIssue() })
	s.wantIssuing(false)
	s.wantJudged()
}

// wantFollowing waits until tokens are issued again, with stamps that are as far
// from the true time as the clock of Redis is.
func (s *timeScene) wantFollowing(within, ahead time.Duration) {
	s.t.Helper()
	polls := 0
	gatewaytest.Eventually(s.t, within, "tokens are issued again", func() bool {
		if polls++; polls%10 == 1 {
			s.wantJudged()
		}
		return s.tryIssue()
	})
	s.wantIssuing(true)
	if got := s.stamp(); (got - ahead).Abs() > 2*time.Second {
		s.t.Errorf("stamps are %v ahead of the true time, Redis is %v", got, ahead)
	}
}

// wantRiding waits until the clock of ids has stepped back, by that much, and checks that tokens are
// issued meanwhile and after, with ids that rise.
func (s *timeScene) wantRiding(back time.Duration) {
	s.t.Helper()
	gatewaytest.Eventually(s.t, noticeTime, "the step is noticed", func() bool {
		if !s.tryIssue() {
			s.t.Error("a token was refused")
		}
		return s.Metrics().Sum("idgen_clock_offset_seconds") > back.Seconds()/2
	})
	for range 100 {
		if !s.tryIssue() {
			s.t.Error("a token was refused")
		}
	}
	s.wantIssuing(true)
	s.wantJudged()
}

// TestReferenceClockJumps sets the clock of Redis by little: a gateway with the monotonic policy
// issues all the time, and judges tokens.
func TestReferenceClockJumps(t *testing.T) {
	t.Parallel()
	t.Run("back by three seconds", func(t *testing.T) {
		t.Parallel()
		s := newTimeScene(t)
		s.stamp()
		s.redis.StepClock(-3 * time.Second)
		s.wantRiding(3 * time.Second)
		gatewaytest.Eventually(t, followTime, "the clock has caught up", func() bool {
			if !s.tryIssue() {
				t.Error("a token was refused")
			}
			return s.Metrics().Sum("idgen_clock_offset_seconds") < 0.1
		})
		s.wantFollowing(followTime, -3*time.Second)
	})
	t.Run("by less than is refused", func(t *testing.T) {
		t.Parallel()
		s := newTimeScene(t)
		for _, by := range []time.Duration{150 * time.Millisecond, -150 * time.Millisecond} {
			before := s.Metrics().Sum("idgen_clock_offset_seconds")
			s.redis.StepClock(by)
			gatewaytest.Eventually(t, noticeTime, "the step is noticed", func() bool {
				if !s.tryIssue() {
					t.Error("a token was refused")
				}
				return s.Metrics().Sum("idgen_clock_offset_seconds") != before
			})
			s.wantIssuing(true)
			s.wantJudged()
		}
	})
}

// TestReferenceClockJumpsByAnHour: forward, which is followed; back, where
// issuing stops until the time is reached again; and there again. Two gateways
// issue all the while. Tokens expire by the same clock, so that those of ten
// minutes are gone after the first jump, and stay so.
func TestReferenceClockJumpsByAnHour(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "it asks for what is so within seconds, and takes as long for a request")
	t.Parallel()
	s := newTimeScene(t)
	brief := s.Token(s.client)
	other := s.besideInTime()
	each := func(f func(*timeScene)) {
		t.Helper()
		var wg sync.WaitGroup
		for _, g := range []*timeScene{s, other} {
			wg.Go(func() { f(g) })
		}
		wg.Wait()
	}
	wantExpired := func(g *timeScene) {
		t.Helper()
		got := g.Get("/orders/1", brief)
		if got.StatusCode != http.StatusUnauthorized || !strings.Contains(got.Header.Get("WWW-Authenticate"), "invalid_token") {
			t.Errorf("a token that has expired: %d %q, want 401 invalid_token", got.StatusCode, got.Header.Get("WWW-Authenticate"))
		}
	}
	each(func(g *timeScene) { g.stamp() })

	s.redis.StepClock(time.Hour)
	each((*timeScene).wantRefusing)
	each(func(g *timeScene) { g.wantFollowing(followTime, time.Hour) })
	each(wantExpired)

	s.redis.StepClock(-time.Hour)
	each(func(g *timeScene) { g.wantRiding(time.Hour) })
	each(wantExpired)

	s.redis.StepClock(time.Hour) // back where it was
	each(func(g *timeScene) { g.wantFollowing(followTime, time.Hour) })
	each(wantExpired)
}

// TestPoliciesOnTheReferenceClock: the clock of Redis is set back by three seconds, and the policy
// decides what happens, as with a host's clock.
func TestPoliciesOnTheReferenceClock(t *testing.T) {
	t.Parallel()
	const step = 3 * time.Second
	for policy, layout := range map[string]string{
		"fail": "", "wait": "", "ring": "", "count": "time:41,datacenter:2,worker:5,sequence:12,rollback:3",
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			redis := redistest.StartWithClock(t)
			s := newHostScene(t, layout, "SNOWGATE_ID_CLOCK=redis", "SNOWGATE_ID_ROLLBACK="+policy, "SNOWGATE_REDIS_URL="+redis.URL())
			before := s.age(step + time.Second)
			redis.StepClock(-step)
			if policy == "fail" || policy == "wait" {
				gatewaytest.Eventually(t, noticeTime, "issuing is refused", func() bool { _, refusal := s.try(); return refusal != "" })
				s.wantRefused("the clock is behind ids that were issued", "the clock is behind")
				gatewaytest.Eventually(t, followTime, "tokens are issued again", func() bool { _, refusal := s.try(); return refusal == "" })
				return
			}
			gatewaytest.Eventually(t, noticeTime, "the clock has stepped", func() bool {
				got := s.must()
				return policy == "count" && got.Rollback == 1 && got.Time.Before(before.Time) ||
					policy == "ring" && time.Until(got.Time) < -step/2
			})
			gatewaytest.Eventually(t, followTime, "the clock has caught up", func() bool { return s.must().Time.After(before.Time.Add(time.Second)) })
		})
	}
}
