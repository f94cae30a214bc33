package clients

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func kept(id, text string, expires time.Time) Secret {
	return Secret{ID: id, SHA256: Digest(text), ExpiresAt: expires}
}

func testRegistry() *Registry {
	r := NewRegistry(time.Hour)
	r.Replace([]Client{
		{ID: "orders", Secrets: []Secret{kept("s1", "first", time.Time{}), kept("s2", "second", noon)}},
		{ID: "billing", Secrets: []Secret{kept("s1", "third", noon.Add(time.Millisecond))}, TokenTTL: time.Minute},
		{ID: "disabled"},
		{ID: "careless", Secrets: []Secret{{ID: "zero"}, kept("empty", "", time.Time{})}},
	})
	return r
}

func TestAuthenticate(t *testing.T) {
	tests := []struct {
		id, secret string
		now        time.Time
		ok         bool
		reason     string
	}{
		{"orders", "first", noon, true, "a secret without an end"},
		{"orders", "second", noon.Add(-time.Nanosecond), true, "the last instant before the end"},
		{"orders", "second", noon, false, "the end is the first instant that is too late"},
		{"orders", "first", noon.AddDate(50, 0, 0), true, "the end of one secret does not touch another"},
		{"billing", "third", noon, true, "the only secret"},
		{"billing", "first", noon, false, "another client's secret"},
		{"orders", "third", noon, false, "another client's secret"},
		{"orders", "First", noon, false, "secrets are case-sensitive"},
		{"orders", "first ", noon, false, "the whole text counts"},
		{"orders", "", noon, false, "no secret"},
		{"Orders", "first", noon, false, "ids are case-sensitive"},
		{"", "first", noon, false, "no id"},
		{"", "", noon, false, "neither"},
		{"nobody", "first", noon, false, "unknown client"},
		{"nobody", "", noon, false, "unknown client, no secret"},
		{"disabled", "", noon, false, "an unset secret does not equal an empty one"},
		{"careless", "", noon, false, "not even if the digest of nothing was registered"},
		{"careless", string(make([]byte, 32)), noon, false, "the zero digest is no text's"},
	}
	registry := testRegistry()
	for _, tt := range tests {
		c, err := registry.Authenticate(tt.id, tt.secret, tt.now)
		switch {
		case tt.ok && (err != nil || c == nil || c.ID != tt.id):
			t.Errorf("Authenticate(%q, %q) = %v, %v, want the client: %s", tt.id, tt.secret, c, err, tt.reason)
		case !tt.ok && (c != nil || err != ErrUnauthenticated):
			t.Errorf("Authenticate(%q, %q) = %v, %v, want exactly ErrUnauthenticated: %s", tt.id, tt.secret, c, err, tt.reason)
		}
	}
}

// The work of an authentication must not tell whether the client is known, how
// many secrets it has, which of them was hit or whether it has expired.
func TestMatchDoesTheSameWorkForAll(t *testing.T) {
	digest := Digest("hit")
	hit, miss := Secret{SHA256: digest}, Secret{SHA256: Digest("miss")}
	expired := Secret{SHA256: digest, ExpiresAt: noon}
	tests := []struct {
		secrets []Secret
		want    bool
		reason  string
	}{
		{nil, false, "unknown client"},
		{[]Secret{hit}, true, "hit"},
		{[]Secret{miss}, false, "wrong secret"},
		{[]Secret{hit, miss, miss}, true, "first hit"},
		{[]Secret{miss, miss, hit}, true, "last hit"},
		{[]Secret{hit, hit, hit}, true, "several hits"},
		{[]Secret{expired}, false, "expired"},
		{[]Secret{expired, hit}, true, "expired beside a live one"},
		{[]Secret{hit, expired}, true, "a live one beside an expired one"},
	}
	const slots = 3
	for _, tt := range tests {
		got, comparisons := match(tt.secrets, digest, slots, noon)
		if got != tt.want || comparisons != slots {
			t.Errorf("match(%s) = %v after %d comparisons, want %v after %d", tt.reason, got, comparisons, tt.want, slots)
		}
	}
	if got, _ := match(nil, [sha256.Size]byte{}, slots, noon); got {
		t.Error("match(no secrets, zero digest) = true: a dummy was hit")
	}
}

func TestSlotsAreThoseOfTheLargestClient(t *testing.T) {
	r := testRegistry()
	if got := r.current.Load().slots; got != 2 {
		t.Errorf("slots = %d, want 2", got)
	}
	r.Replace(nil)
	if got := r.current.Load().slots; got != 1 {
		t.Errorf("slots of an empty registry = %d, want 1: unknown clients are compared with something too", got)
	}
}

func TestReplace(t *testing.T) {
	r := testRegistry()
	before := r.Lookup("orders")
	r.Replace([]Client{{ID: "new", Secrets: []Secret{kept("s", "text", time.Time{})}}})
	if _, err := r.Authenticate("orders", "first", noon); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a removed client still gets in: %v", err)
	}
	if _, err := r.Authenticate("new", "text", noon); err != nil {
		t.Errorf("a new client does not get in: %v", err)
	}
	if before == nil || before.TokenTTL != time.Hour || r.Lookup("orders") != nil || r.Len() != 1 {
		t.Errorf("Lookup and Len do not follow Replace: %v, %d", before, r.Len())
	}
}

func TestReplaceWhileAuthenticating(t *testing.T) {
	r := testRegistry()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if c, err := r.Authenticate("orders", "first", noon); err != nil || c.TokenTTL != time.Hour {
					t.Errorf("Authenticate while the registry changes = %v, %v", c, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		r.Replace([]Client{{ID: "orders", Secrets: []Secret{kept("s1", "first", time.Time{})}}, {ID: fmt.Sprint(i)}})
	}
	wg.Wait()
}

func TestAuthenticateDoesNotAllocate(t *testing.T) {
	r := testRegistry()
	secret, digest := NewSecret()
	r.Replace([]Client{{ID: "orders", Secrets: []Secret{{ID: "s", SHA256: digest}}}})
	text := secret.Reveal()
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Authenticate("orders", text, noon) }); n != 0 {
		t.Errorf("Authenticate allocates %v times, want 0", n)
	}
}

func TestValidID(t *testing.T) {
	tests := []struct {
		id     string
		want   bool
		reason string
	}{
		{"orders-worker", true, "usual"},
		{"A.b_c~d-9", true, "every kind of character"},
		{strings.Repeat("x", 128), true, "longest"},
		{strings.Repeat("x", 129), false, "too long"},
		{strings.Repeat("x", 64<<10), false, "far too long"},
		{"", false, "empty"},
		{"a b", false, "space"},
		{"a:b", false, "would end the id in Basic credentials"},
		{"a*", false, "a pattern in Redis"},
		{"{a}", false, "decides about Cluster slots"},
		{"a\r\nb", false, "would split a header or a log line"},
		{"a%41", false, "form-encoding"},
		{"a+b", false, "form-encoding"},
		{"é", false, "not ASCII"},
		{"a\x00", false, "NUL"},
	}
	for _, tt := range tests {
		if got := ValidID(tt.id); got != tt.want {
			t.Errorf("ValidID(%.40q) = %v, want %v: %s", tt.id, got, tt.want, tt.reason)
		}
	}
}

// BenchmarkAuthenticate bounds the part of a token request that is spent on the
// client: one hash and a few comparisons.
func BenchmarkAuthenticate(b *testing.B) {
	r := NewRegistry(time.Hour)
	all := make([]Client, 10_000)
	texts := make([]string, len(all))
	for i := range all {
		secret, digest := NewSecret()
		texts[i] = secret.Reveal()
		all[i] = Client{ID: fmt.Sprintf("client-%d", i), Secrets: []Secret{{ID: "s", SHA256: digest}}}
	}
	r.Replace(all)
	b.ReportAllocs()
	for b.Loop() {
		i := rand.IntN(len(all))
		if _, err := r.Authenticate(all[i].ID, texts[i], noon); err != nil {
			b.Fatal(err)
		}
	}
}
