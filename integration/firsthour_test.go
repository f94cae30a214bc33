package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestRedisTroubleIsTold: a Redis that cannot be used as configured is told with its address, the
// variable and the way out, by a gateway and by config -check -redis.
func TestRedisTroubleIsTold(t *testing.T) {
	t.Parallel()
	plain := redistest.StartWithClock(t)
	for name, tt := range map[string]struct {
		url  string
		want []string
	}{
		"a wrong password": {"redis://:another-one@" + plain.Addr(), []string{
			"WRONGPASS", plain.Addr(), "SNOWGATE_REDIS_URL", "the password is wrong, or the user",
		}},
		"no password": {"redis://" + plain.Addr(), []string{
			"NOAUTH", plain.Addr(), "redis://:PASSWORD@" + plain.Addr(),
		}},
		"TLS to a Redis without": {"rediss://:another-one@" + plain.Addr(), []string{
			plain.Addr(), "SNOWGATE_REDIS_URL", "speaks no TLS: write redis:// instead of rediss://",
		}},
		"nobody there": {"redis://:another-one@" + closedAddress(t), []string{
			"connection refused", "SNOWGATE_REDIS_URL", "is it running there",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{"SNOWGATE_REDIS_URL=" + tt.url, "SNOWGATE_WORKER_ID=1"}
			g := gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, NotReady: true, Env: env})
			line := fmt.Sprint(g.WaitLog("Redis cannot be used: requests that need it are answered with 503"))
			_, output := snowgate(t, env, "config", "-check", "-redis")
			for _, want := range tt.want {
				if !strings.Contains(line, want) {
					t.Errorf("the log does not say %q:\n%s", want, line)
				}
				if !strings.Contains(output, want) {
					t.Errorf("config -check -redis does not say %q:\n%s", want, output)
				}
			}
			if strings.Contains(line+output, "another-one") {
				t.Error("the password is told")
			}
		})
	}
}

// TestClockOfRedisIsTold: a gateway says when the clock of Redis is not that of its host, or reads a
// time before the epoch, and when it is right again.
func TestClockOfRedisIsTold(t *testing.T) {
	t.Parallel()
	redis := redistest.StartWithClock(t)
	g := gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, NotReady: true, Env: []string{
		"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_WORKER_ID=1", "SNOWGATE_STORE_TIMEOUT=5s",
	}})
	g.WaitLog("Redis is reachable")
	redis.StepClock(time.Hour)
	line := fmt.Sprint(g.WaitLog("the clock of Redis is not that of this host"))
	for _, want := range []string{"1h0m0s ahead", "run NTP on both"} {
		if !strings.Contains(line, want) {
			t.Errorf("an hour ahead: want %q in %s", want, line)
		}
	}
	redis.StepClock(-time.Hour)
	g.WaitLog("the clock of Redis is right again")
	redis.StepClock(-50 * 365 * 24 * time.Hour)
	line = fmt.Sprint(g.WaitLog("the clock of Redis reads a time before the epoch: no ids and tokens are issued"))
	for _, want := range []string{"SNOWGATE_EPOCH", "2026-01-01T00:00:00Z", "correct that clock"} {
		if !strings.Contains(line, want) {
			t.Errorf("before the epoch: want %q in %s", want, line)
		}
	}
}
