package cli

import (
	"strings"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens/redisstore"
)

// TestRebaseRefusal: what stands against a change, by what lives and whether gateways run.
func TestRebaseRefusal(t *testing.T) {
	const layout, slow = "time:41,worker:10,sequence:12", "time:41,worker:5,sequence:7"
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	scheme := func(epoch time.Time, text string) idgen.Scheme {
		l, err := idgen.ParseLayout(text)
		if err != nil {
			t.Fatal(err)
		}
		s, err := idgen.NewScheme(l, epoch)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, tt := range map[string]struct {
		new     idgen.Scheme
		age     time.Duration // of a token that lives for an hour; 0: there is none
		running bool
		want    string // empty: nothing
		above   bool
	}{
		"another split of the same bits":     {scheme(epoch, "time:41,worker:5,sequence:17"), time.Minute, true, "", true},
		"an earlier epoch":                   {scheme(epoch.Add(-time.Hour), layout), time.Minute, true, "", true},
		"a later epoch, nothing lives":       {scheme(epoch.Add(10*time.Minute), layout), 0, false, "", false},
		"a later epoch, within the lifetime": {scheme(epoch.Add(10*time.Minute), layout), time.Minute, false, "wait until 2026-11-01T12:59:05Z", false},
		"a later epoch, beyond it":           {scheme(epoch.Add(2*time.Hour), layout), time.Minute, false, "", false},
		"a later epoch, in the past already": {scheme(epoch.Add(10*time.Minute), layout), 30 * time.Minute, false, "", false},
		"a later epoch, gateways run":        {scheme(epoch.Add(10*time.Minute), layout), 0, true, "stop all gateways", false},
		"fewer bits":                         {scheme(epoch, slow), time.Minute, true, "", false},
		"more bits":                          {scheme(epoch, "time:41,worker:4,sequence:18"), time.Minute, true, "", true},
		"an epoch to come":                   {scheme(now.Add(time.Hour), layout), 0, false, "in the future", false},
		"a time field that is full":          {scheme(epoch, "time:30,worker:4,sequence:18"), 0, false, "was full on", false},
	} {
		r := rebase{old: scheme(epoch, layout), new: tt.new, now: now, longest: 24 * time.Hour, from: redisstore.Installation{Layout: layout}}
		if tt.running {
			r.highest = now.Add(3 * time.Second)
		}
		if tt.age > 0 {
			r.count(r.old.First(now.Add(-tt.age))+4711, now.Add(time.Hour-tt.age))
		}
		err := r.refusal()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if err == nil && r.above() != tt.above {
			t.Errorf("%s: above is %t, want %t", name, r.above(), tt.above)
		}
	}
}

// TestRebaseRefusalExactly compares the judgement with ids: whenever it allows a change, no id that
// the new scheme makes while a token lives is that of the token.
func TestRebaseRefusalExactly(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	small := "time:41,worker:1,sequence:1"
	l, err := idgen.ParseLayout(small)
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	old, err := idgen.NewScheme(l, epoch)
	if err != nil {
		t.Fatal(err)
	}
	allowed, refused := 0, 0
	for shift := -20 * time.Second; shift <= 20*time.Second; shift += 250 * time.Millisecond {
		next, err := idgen.NewScheme(l, epoch.Add(shift))
		if err != nil {
			t.Fatal(err)
		}
		for age := time.Duration(0); age < 12*time.Second; age += 500 * time.Millisecond {
			r := rebase{old: old, new: next, now: now, longest: 12 * time.Second}
			id, expires := old.First(now.Add(-age)), now.Add(12*time.Second-age)
			r.count(id, expires)
			if r.refusal() != nil {
				refused++
				continue
			}
			allowed++
			for at := r.start(); at.Before(expires); at = at.Add(time.Millisecond) {
				if next.First(at) <= id && id < next.First(at.Add(time.Millisecond)) {
					t.Errorf("shift %v, age %v: the id comes again at %v, and its token lives until %v", shift, age, at, expires)
				}
			}
		}
	}
	if allowed == 0 || refused == 0 {
		t.Errorf("%d changes were allowed and %d refused", allowed, refused)
	}
}
