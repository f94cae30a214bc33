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

// textOf returns a client secret, always the same for a name.
func textOf(name string) string { return formatSecret(sha256.Sum256([]byte(name))).text }

func kept(id, name string, expires time.Time) Secret {
	return Secret{ID: id, SHA256: Digest(textOf(name)), ExpiresAt: expires}
}

// TestFreeFormSecretsAreRefused: a configuration file that was copied from an example may have the
// digest of a text that can be guessed. Such a text must not authenticate.
func TestFreeFormSecretsAreRefused(t *testing.T) {
	good := textOf("good")
	r := NewRegistry(time.Hour)
	for _, text := range []string{"test", "secret", "password", "changeme", "sgs_test", good[:SecretLen-1], good + "0", "x" + good[1:], good[:SecretLen-1] + "-"} {
		replace(r, []Client{{ID: "careless", Secrets: []Secret{{ID: "s1", SHA256: Digest(text)}}}})
		if c, err := r.Authenticate("careless", text, noon); c != nil || err != ErrUnauthenticated {
			t.Errorf("Authenticate(careless, %q) = %v, %v, want exactly ErrUnauthenticated", text, c, err)
		}
		if n := testing.AllocsPerRun(10, func() { _, _ = r.Authenticate("careless", text, noon) }); n != 0 {
			t.Errorf("refusing %q allocates %v times, want 0", text, n)
		}
	}
	replace(r, []Client{{ID: "careful", Secrets: []Secret{kept("s1", "good", time.Time{})}}})
	if _, err := r.Authenticate("careful", good, noon); err != nil {
		t.Errorf("Authenticate with a client secret = %v", err)
	}
}

// replace replaces the configured clients.
func replace(r *Registry, all []Client) {
	if err := r.ReplaceFile(all); err != nil {
		panic(err)
	}
}

func testRegistry() *Registry {
	r := NewRegistry(time.Hour)
	replace(r, []Client{
		{ID: "orders", Secrets: []Secret{kept("s1", "first", time.Time{}), kept("s2", "second", noon)}},
		{ID: "billing", Secrets: []Secret{kept("s1", "third", noon.Add(time.Millisecond))}, TokenTTL: time.Minute},
		{ID: "empty"},
		{ID: "disabled", Secrets: []Secret{kept("s1", "fourth", time.Time{})}, Disabled: true},
		{ID: "careless", Secrets: []Secret{{ID: "zero"}, {ID: "empty", SHA256: Digest("")}}},
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
		{"orders", textOf("first"), noon, true, "a secret without an end"},
		{"orders", textOf("second"), noon.Add(-time.Nanosecond), true, "the last instant before the end"},
		{"orders", textOf("second"), noon, false, "the end is the first instant that is too late"},
		{"orders", textOf("first"), noon.AddDate(50, 0, 0), true, "the end of one secret does not touch another"},
		{"billing", textOf("third"), noon, true, "the only secret"},
		{"billing", textOf("first"), noon, false, "another client's secret"},
		{"orders", textOf("third"), noon, false, "another client's secret"},
		{"orders", strings.ToLower(textOf("first")), noon, false, "secrets are case-sensitive"},
		{"orders", textOf("first") + " ", noon, false, "the whole text counts"},
		{"orders", "", noon, false, "no secret"},
		{"Orders", textOf("first"), noon, false, "ids are case-sensitive"},
		{"", textOf("first"), noon, false, "no id"},
		{"", "", noon, false, "neither"},
		{"nobody", textOf("first"), noon, false, "unknown client"},
		{"nobody", "", noon, false, "unknown client, no secret"},
		{"disabled", textOf("fourth"), noon, false, "the right secret of a disabled client"},
		{"disabled", textOf("first"), noon, false, "a wrong secret of a disabled client"},
		{"empty", "", noon, false, "an unset secret does not equal an empty one"},
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

// TestMatchDoesTheSameWorkForAll: the number of comparisons must not depend on whether the client
// is known, how many secrets it has, which of them matches, or whether it has expired.
func TestMatchDoesTheSameWorkForAll(t *testing.T) {
	digest := Digest("hit")
	hit, miss := Secret{SHA256: digest}, Secret{SHA256: Digest("miss")}
	expired := Secret{SHA256: digest, ExpiresAt: noon}
	tests := []struct {
		secrets []Secret
		want    int
		reason  string
	}{
		{nil, -1, "unknown client"},
		{[]Secret{hit}, 0, "hit"},
		{[]Secret{miss}, -1, "wrong secret"},
		{[]Secret{hit, miss, miss}, 0, "first hit"},
		{[]Secret{miss, miss, hit}, 2, "last hit"},
		{[]Secret{hit, hit, hit}, 2, "several hits"},
		{[]Secret{expired}, -1, "expired"},
		{[]Secret{expired, hit}, 1, "expired beside a live one"},
		{[]Secret{hit, expired}, 0, "a live one beside an expired one"},
	}
	const slots = 3
	for _, tt := range tests {
		got, comparisons := match(tt.secrets, digest, slots, noon)
		if got != tt.want || comparisons != slots {
			t.Errorf("match(%s) = %v after %d comparisons, want %v after %d", tt.reason, got, comparisons, tt.want, slots)
		}
	}
	if got, _ := match(nil, [sha256.Size]byte{}, slots, noon); got >= 0 {
		t.Error("match(no secrets, zero digest) = true: a dummy was hit")
	}
}

func TestSlotsAreThoseOfTheLargestClient(t *testing.T) {
	r := testRegistry()
	if got := r.current.Load().slots(); got != 2 {
		t.Errorf("slots = %d, want 2", got)
	}
	replace(r, nil)
	if got := r.current.Load().slots(); got != 1 {
		t.Errorf("slots of an empty registry = %d, want 1: unknown clients are compared with something too", got)
	}
}

func TestReplace(t *testing.T) {
	r := testRegistry()
	before := r.Lookup("orders")
	replace(r, []Client{{ID: "new", Secrets: []Secret{kept("s", "text", time.Time{})}}})
	if _, err := r.Authenticate("orders", textOf("first"), noon); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a removed client still gets in: %v", err)
	}
	if _, err := r.Authenticate("new", textOf("text"), noon); err != nil {
		t.Errorf("a new client does not get in: %v", err)
	}
	if before == nil || before.DefaultTTL != time.Hour || r.Lookup("orders") != nil || r.Len() != 1 {
		t.Errorf("Lookup and Len do not follow Replace: %v, %d", before, r.Len())
	}
}

func TestReplaceWhileAuthenticating(t *testing.T) {
	r := testRegistry()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if c, err := r.Authenticate("orders", textOf("first"), noon); err != nil || c.DefaultTTL != time.Hour {
					t.Errorf("Authenticate while the registry changes = %v, %v", c, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		replace(r, []Client{{ID: "orders", Secrets: []Secret{kept("s1", "first", time.Time{})}}, {ID: fmt.Sprint(i)}})
	}
	wg.Wait()
}

func TestAuthenticateDoesNotAllocate(t *testing.T) {
	r := testRegistry()
	secret, digest := NewSecret()
	replace(r, []Client{{ID: "orders", Secrets: []Secret{{ID: "s", SHA256: digest}}}})
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
		{".", false, "a path cannot name it"},
		{"..", false, "a path cannot name it"},
		{"...", true, "a path can name it"},
	}
	for _, tt := range tests {
		if got := ValidID(tt.id); got != tt.want {
			t.Errorf("ValidID(%.40q) = %v, want %v: %s", tt.id, got, tt.want, tt.reason)
		}
	}
}

// The benchmarks measure the look-up of the client in a token request: one hash and a few
// comparisons, for any number of clients. They use a thousand clients in turn; with all of them,
// they would measure the memory.
func BenchmarkAuthenticate(b *testing.B) {
	forRegistries(b, func(b *testing.B, r *Registry, ids, texts []string) {
		for b.Loop() {
			i := rand.IntN(len(ids))
			if _, err := r.Authenticate(ids[i], texts[i], noon); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	forRegistries(b, func(b *testing.B, r *Registry, ids, _ []string) {
		for b.Loop() {
			if r.Lookup(ids[rand.IntN(len(ids))]) == nil {
				b.Fatal("a client is missing")
			}
		}
	})
}

// BenchmarkChangeStored measures the cost of one push.
func BenchmarkChangeStored(b *testing.B) {
	forRegistries(b, func(b *testing.B, r *Registry, ids, _ []string) {
		for b.Loop() {
			r.ChangeStored([]Client{*r.Lookup(ids[rand.IntN(len(ids))])}, nil)
		}
	})
}

func forRegistries(b *testing.B, bench func(b *testing.B, r *Registry, ids, texts []string)) {
	for _, n := range []int{10, 100_000} {
		r := NewRegistry(time.Hour)
		all, ids, texts := make([]Client, n), make([]string, n), make([]string, n)
		for i := range all {
			secret, digest := NewSecret()
			ids[i], texts[i] = fmt.Sprintf("client-%d", i), secret.Reveal()
			all[i] = Client{ID: ids[i], Secrets: []Secret{{ID: "s1", SHA256: digest}}, Source: SourceRegistry}
		}
		r.ChangeStored(all, nil)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			bench(b, r, ids[:min(n, 1000)], texts)
		})
	}
}
