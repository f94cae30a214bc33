package integration_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// hostScene is a gateway whose ids are stamped by a host's clock that the test sets.
type hostScene struct {
	*gatewaytest.Gateway
	t      *testing.T
	clock  *gatewaytest.HostClock
	client gatewaytest.Credentials
	env    []string
	scheme idgen.Scheme
	ids    map[idgen.ID]bool // that were issued
}

// newHostScene starts a gateway of that layout; an empty one is the default.
func newHostScene(t *testing.T, layout string, env ...string) *hostScene {
	t.Helper()
	env = append([]string{"SNOWGATE_ID_CLOCK=host"}, env...)
	parsed := idgen.LayoutDefault
	if layout != "" {
		env = append(env, "SNOWGATE_ID_LAYOUT="+layout)
		var err error
		if parsed, err = idgen.ParseLayout(layout); err != nil {
			t.Fatal(err)
		}
	}
	scheme, err := idgen.NewScheme(parsed, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	s := &hostScene{
		t: t, clock: gatewaytest.NewHostClock(t), client: gatewaytest.NewClient("worker", "orders.read", "introspect: true"),
		env: env, scheme: scheme, ids: make(map[idgen.ID]bool),
	}
	s.start(false)
	return s
}

// start starts the gateway, or another one in its place.
func (s *hostScene) start(notReady bool) {
	s.t.Helper()
	s.Gateway = gatewaytest.Start(s.t, gatewaytest.Options{
		Config: "clients:\n" + s.client.YAML, Env: s.env, HostClock: s.clock, NotReady: notReady,
	})
}

// try asks for a token and returns the fields of its id, or the response that refuses it. No id may
// come twice, and the token must be good at once.
func (s *hostScene) try() (parts idgen.Parts, refusal string) {
	s.t.Helper()
	status, body := s.Post("/oauth2/token", s.client, "grant_type", "client_credentials")
	if status != http.StatusOK {
		if status != http.StatusServiceUnavailable || !strings.Contains(body, `"temporarily_unavailable"`) {
			s.t.Fatalf("token: %d %s, want 200 or 503 temporarily_unavailable", status, body)
		}
		return parts, body
	}
	var response struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		s.t.Fatal(err)
	}
	id, err := idgen.Parse(strings.Split(response.AccessToken, "_")[1])
	if err == nil {
		parts, err = s.scheme.Decompose(id)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if s.ids[id] {
		s.t.Errorf("the id %s was issued twice", id)
	}
	s.ids[id] = true
	if status, body := s.Post("/oauth2/introspect", s.client, "token", response.AccessToken); !strings.Contains(body, `"active":true`) {
		s.t.Errorf("a token issued just now: %d %s, want active", status, body)
	}
	return parts, ""
}

// must is try where there must be a token.
func (s *hostScene) must() idgen.Parts {
	s.t.Helper()
	parts, refusal := s.try()
	if refusal != "" {
		s.t.Fatalf("no token: %s\n/readyz: %s", refusal, s.Get("/readyz", "").Body)
	}
	return parts
}

// wantRefused checks the response to a request for a token, and what /readyz says.
func (s *hostScene) wantRefused(reason string, missing ...string) {
	s.t.Helper()
	_, refusal := s.try()
	if !strings.Contains(refusal, "No token can be issued at the moment: "+reason+".") {
		s.t.Errorf("token: %q, want it refused because %s", refusal, reason)
	}
	got := s.Get("/readyz", "")
	for _, text := range missing {
		if !strings.Contains(got.Body, text) {
			s.t.Errorf("/readyz: %d %s, want %q", got.StatusCode, got.Body, text)
		}
	}
}

// age issues tokens until the first of its ids is older than d, by the host's clock.
func (s *hostScene) age(d time.Duration) (last idgen.Parts) {
	s.t.Helper()
	first := s.must()
	gatewaytest.Eventually(s.t, patience, "the first id is old enough", func() bool {
		last = s.must()
		return last.Time.Sub(first.Time) > d
	})
	return last
}

// TestHostClockStepsBack: under each policy the machine's clock is set back by 100 ms.
func TestHostClockStepsBack(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "a request takes longer than the step of the clock")
	t.Parallel()
	const step = 100 * time.Millisecond
	for policy, test := range map[string]func(t *testing.T, s *hostScene, before idgen.Parts){
		"monotonic": func(t *testing.T, s *hostScene, before idgen.Parts) {
			if got := s.must(); got.Time.Before(before.Time) {
				t.Errorf("stamped %v after %v", got.Time, before.Time)
			}
		},
		"count": func(t *testing.T, s *hostScene, before idgen.Parts) {
			if got := s.must(); got.Rollback != 1 || !got.Time.Before(before.Time) {
				t.Errorf("got %+v, want rollback 1 and a time before %v", got, before.Time)
			}
		},
		"ring": func(t *testing.T, s *hostScene, _ idgen.Parts) {
			if got := s.must(); got.Time.Sub(s.clock.Now()) > 201*time.Millisecond {
				t.Errorf("stamped %v, the clock shows %v", got.Time, s.clock.Now())
			}
		},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			layout := ""
			if policy == "count" {
				layout = "time:41,datacenter:2,worker:5,sequence:12,rollback:3"
			}
			s := newHostScene(t, layout, "SNOWGATE_ID_ROLLBACK="+policy)
			before := s.age(2 * step)
			s.clock.Step(-step)
			test(t, s, before)
		})
	}
	for _, policy := range []string{"wait", "fail"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newHostScene(t, "", "SNOWGATE_ID_ROLLBACK="+policy)
			before := s.must()
			// Half a minute more than an hour: the difference is measured over the wire and may be
			// off by some milliseconds, which must not change what is compared.
			const step = time.Hour + 30*time.Second
			s.clock.Step(-step)
			s.wantRefused("the clock is behind ids that were issued", "the host's clock is 1h0m", "behind Redis TIME", "SNOWGATE_ID_CLOCK=redis")
			s.clock.Step(step)
			if got := s.must(); got.Time.Before(before.Time) {
				t.Errorf("stamped %v after %v", got.Time, before.Time)
			}
		})
	}
}

// TestHostClockAhead: beyond the ceiling, which follows Redis TIME, nothing is issued, and the
// refusal says why. It is no slower than another answer.
func TestHostClockAhead(t *testing.T) {
	t.Parallel()
	s := newHostScene(t, "", "SNOWGATE_REDIS_URL="+redistest.Start(t).URL())
	s.must()
	s.clock.Step(500 * time.Millisecond) // within the ceiling
	begun := time.Now()
	if got := s.must(); got.Time.Sub(begun) < 300*time.Millisecond {
		t.Errorf("stamped %v, want the time of the host", got.Time)
	}
	s.clock.Step(10 * time.Second)
	s.wantRefused("the clock is ahead of the recorded ceiling", "the host's clock is 10.", "ahead of Redis TIME", "SNOWGATE_ID_CLOCK=redis")
	s.clock.Step(-10500 * time.Millisecond)
	s.must()
}

// TestHostClockBehindATakeover: the clock is set back and the gateway killed in the same moment.
// The one that takes its number over issues nothing that the first one may have issued: monotonic
// starts at the floor, and the others refuse until their clock is there.
func TestHostClockBehindATakeover(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "what cuts has the address that the second gateway listens on")
	t.Parallel()
	for _, policy := range []string{"monotonic", "count", "ring", "fail"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			const layout = "time:41,datacenter:2,worker:5,sequence:12,rollback:3"
			s := newHostScene(t, layout, "SNOWGATE_REDIS_URL="+redistest.Start(t).URL(), "SNOWGATE_ID_ROLLBACK="+policy)
			highest := s.must()
			s.clock.Step(-time.Hour)
			s.Signal(syscall.SIGKILL)
			s.Wait()
			s.env = append(s.env, "SNOWGATE_LISTEN="+s.Addr) // the address that has the number
			s.start(policy == "count" || policy == "fail")
			if policy == "monotonic" || policy == "ring" {
				if got := s.must(); got.Worker != highest.Worker || !got.Time.After(highest.Time) || got.Rollback != 0 {
					t.Errorf("after the takeover: %+v, before: %+v", got, highest)
				}
				return
			}
			gatewaytest.Eventually(t, patience, "the number is taken over", func() bool {
				return strings.Contains(s.Get("/readyz", "").Body, `"worker":`)
			})
			s.wantRefused("the clock is behind ids that were issued", "behind Redis TIME")
			s.clock.Step(time.Hour)
			if got := s.must(); got.Worker != highest.Worker || !got.Time.After(highest.Time) || got.Rollback != 0 {
				t.Errorf("after the takeover: %+v, before: %+v", got, highest)
			}
		})
	}
}

// TestNoClockOfTestsInTheBinary: the gateway that users get reads no file for the time.
func TestNoClockOfTestsInTheBinary(t *testing.T) {
	t.Parallel()
	binary, err := os.ReadFile(gatewaytest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(binary, []byte("SNOWGATE_TEST_CLOCK")) {
		t.Error("the gateway knows SNOWGATE_TEST_CLOCK, which is for tests")
	}
}
