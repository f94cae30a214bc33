package problem_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"snowgate/internal/problem"
	"snowgate/limit"
	"snowgate/tokens"
)

func TestTooMany(t *testing.T) {
	after := func(kind limit.Kind, wait time.Duration) error {
		return fmt.Errorf("x: %w", &limit.ExceededError{Kind: kind, Decision: limit.Decision{RetryAfter: wait}})
	}
	tests := []struct {
		err   error
		after string
	}{
		{after(limit.ClientRate, time.Nanosecond), "1"},
		{after(limit.ClientRate, time.Second), "1"},
		{after(limit.FailedClient, time.Second+1), "2"}, // rounded up, or the next request would be too early
		{after(limit.FailedAddress, 90*time.Minute), "5400"},
		{after(limit.Kind("another"), time.Second), "1"},
		{&tokens.LimitedError{RetryAfter: 3 * time.Second}, "3"},
		{problem.Challenge{}.Refused(&tokens.LimitedError{}), "1"}, // the error has no wait
	}
	for _, tt := range tests {
		w, x := respond(problem.OAuth, tt.err)
		var got map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusTooManyRequests || got["error"] != "temporarily_unavailable" || got["error_description"] == "" || x.Cause == nil {
			t.Errorf("OAuth(%v): %d %v, cause %v", tt.err, w.Code, got, x.Cause)
		}
		p, _ := respond(problem.Write, tt.err)
		if p.Code != http.StatusTooManyRequests {
			t.Errorf("Write(%v): %d", tt.err, p.Code)
		}
		for _, header := range []http.Header{w.Header(), p.Header()} {
			if header.Get("Retry-After") != tt.after || header.Get("Www-Authenticate") != "" {
				t.Errorf("%v: %v, want Retry-After %s and no challenge", tt.err, header, tt.after)
			}
		}
	}
}

// TestFailuresLookAlike: the response does not reveal which of the two limits was exceeded.
func TestFailuresLookAlike(t *testing.T) {
	d := limit.Decision{RetryAfter: 5 * time.Second}
	a, _ := respond(problem.OAuth, &limit.ExceededError{Kind: limit.FailedClient, Decision: d})
	b, _ := respond(problem.OAuth, &limit.ExceededError{Kind: limit.FailedAddress, Decision: d})
	if x, y := fmt.Sprint(a.Code, a.Header(), a.Body), fmt.Sprint(b.Code, b.Header(), b.Body); x != y {
		t.Errorf("%s\n%s", x, y)
	}
}

func TestSetRateLimit(t *testing.T) {
	tests := []struct {
		decision      limit.Decision
		policy, state string
	}{
		{limit.Decision{Allowed: true}, "", ""},
		{limit.Decision{Rate: limit.Rate{Count: 100, Per: time.Second}, Allowed: true, Remaining: 99, Reset: 10 * time.Millisecond},
			`"client";q=100;w=1`, `"client";r=99;t=1`},
		{limit.Decision{Rate: limit.Rate{Count: 5, Per: time.Hour}, Allowed: true, Remaining: 2, Reset: 36*time.Minute - 1},
			`"client";q=5;w=3600`, `"client";r=2;t=2160`},
		{limit.Decision{Rate: limit.Rate{Count: 5, Per: time.Hour}, Reset: time.Hour, RetryAfter: 700*time.Second + 1},
			`"client";q=5;w=3600`, `"client";r=0;t=701`},
	}
	for _, tt := range tests {
		header := make(http.Header)
		problem.SetRateLimit(header, tt.decision)
		if header.Get("RateLimit-Policy") != tt.policy || header.Get("RateLimit") != tt.state {
			t.Errorf("SetRateLimit(%+v): %v, want %s and %s", tt.decision, header, tt.policy, tt.state)
		}
	}
}
