package clients

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/internal/scope"
)

// stored is a client of the store.
func stored(id string, texts ...string) Client {
	c := Client{ID: id, Source: SourceRegistry, Revision: 1}
	for i, text := range texts {
		c.Secrets = append(c.Secrets, kept(fmt.Sprintf("s%d", i+1), text, time.Time{}))
	}
	return c
}

func TestStoredClientsComeAndGo(t *testing.T) {
	r := testRegistry()
	r.ChangeStored([]Client{stored("a", "one"), stored("b", "two")}, nil)
	for id, secret := range map[string]string{"a": "one", "b": "two", "orders": "first"} {
		if c, err := r.Authenticate(id, textOf(secret), noon); err != nil || c.ID != id || c.DefaultTTL != time.Hour {
			t.Errorf("Authenticate(%s) = %v, %v, want the client", id, c, err)
		}
	}
	r.ChangeStored([]Client{stored("b", "three")}, []string{"a", "never was"})
	for id, secret := range map[string]string{"a": "one", "b": "two"} {
		if _, err := r.Authenticate(id, textOf(secret), noon); err != ErrUnauthenticated {
			t.Errorf("Authenticate(%s) after the change = %v, want ErrUnauthenticated", id, err)
		}
	}
	if _, err := r.Authenticate("b", textOf("three"), noon); err != nil {
		t.Errorf("Authenticate(b) with its new secret = %v", err)
	}
}

// TestStoredClientsAreThoseOfAMap: after any sequence of changes, the registry holds the same
// clients as a plain map, and makes as many comparisons as the client with the most secrets needs.
func TestStoredClientsAreThoseOfAMap(t *testing.T) {
	r, want := NewRegistry(time.Hour), map[string]int{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		id := fmt.Sprint(random.IntN(300))
		if random.IntN(3) == 0 {
			delete(want, id)
			r.ChangeStored(nil, []string{id})
		} else {
			want[id] = random.IntN(MaxSecrets + 1)
			r.ChangeStored([]Client{stored(id, slices.Repeat([]string{"x"}, want[id])...)}, nil)
		}
	}
	got, slots := map[string]int{}, 1
	page, more := r.Page("", 1000, nil)
	for _, c := range page {
		got[c.ID] = len(c.Secrets)
		slots = max(slots, len(c.Secrets))
	}
	if diff := cmp.Diff(want, got); diff != "" || more || r.Len() != len(want) {
		t.Errorf("%d clients, more %v (-want +got):\n%s", r.Len(), more, diff)
	}
	if s := r.current.Load().slots(); s != slots {
		t.Errorf("slots = %d, want %d", s, slots)
	}

	// A later change does not affect a snapshot.
	before := r.current.Load()
	for id := range want {
		r.ChangeStored([]Client{stored("new " + id)}, []string{id})
	}
	left := map[string]int{}
	for e := range before.all {
		left[e.client.ID] = len(e.client.Secrets)
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("a change reached a snapshot of before (-want +got):\n%s", diff)
	}
	if s := r.current.Load().slots(); s != 1 {
		t.Errorf("slots = %d when no client has a secret, want 1", s)
	}
}

func TestClash(t *testing.T) {
	r := testRegistry()
	var told []string
	r.Follow(func() bool { return true }, func(id string) { told = append(told, id) })
	r.ChangeStored([]Client{stored("new", "one"), stored("orders", "stolen"), stored("also", "two")}, nil)
	r.ChangeStored([]Client{stored("orders", "again")}, nil)
	if diff := cmp.Diff([]string{"orders"}, told); diff != "" {
		t.Errorf("clashes that were told (-want +got):\n%s", diff)
	}
	if _, err := r.Authenticate("orders", textOf("stolen"), noon); err != ErrUnauthenticated {
		t.Errorf("the stored client got in behind the configured one: %v", err)
	}
	if c, err := r.Authenticate("orders", textOf("first"), noon); err != nil || c.Source != SourceFile {
		t.Errorf("the configured client = %v, %v, want it to count", c, err)
	}
	if r.Stored("orders") == nil || r.Len() != len(testRegistry().current.Load().configured)+2 {
		t.Errorf("Stored = %v, Len = %d, want the hidden client not counted twice", r.Stored("orders"), r.Len())
	}

	err := r.ReplaceFile([]Client{{ID: "x"}, {ID: "new"}, {ID: "y"}, {ID: "x"}, {ID: "also"}, {ID: "x"}})
	var clash *ClashError
	if !errors.As(err, &clash) || !slices.Equal(clash.Twice, []string{"x"}) || !slices.Equal(clash.Stored, []string{"also", "new"}) {
		t.Errorf("ReplaceFile with clashes = %v, want an error that names all of them", err)
	}
	for _, name := range []string{"x", "also", "new"} {
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	if r.Lookup("orders") == nil || r.Lookup("y") != nil {
		t.Error("a file that was refused is in force")
	}
}

// TestResponsesWhileTheStoreIsNotCurrent: while the copy of the store is not current, Authenticate
// returns ErrUnavailable for every client that may be in the store.
func TestResponsesWhileTheStoreIsNotCurrent(t *testing.T) {
	confirmed := false
	r := testRegistry()
	r.Follow(func() bool { return confirmed }, nil)
	r.ChangeStored([]Client{stored("a", "one")}, nil)
	disabled := stored("off", "two")
	disabled.Disabled = true
	r.ChangeStored([]Client{disabled}, nil)

	check := func(state string, stored, refusal error) {
		t.Helper()
		for _, tt := range []struct {
			id, secret string
			want       error
		}{
			{"orders", "first", nil},
			{"orders", "wrong", ErrUnauthenticated}, // the file is known
			{"a", "one", stored},                    // it may be disabled by now
			{"a", "wrong", refusal},                 // it may have got another secret
			{"off", "two", refusal},                 // it may be enabled again
			{"unknown", "one", refusal},
		} {
			if _, err := r.Authenticate(tt.id, textOf(tt.secret), noon); err != tt.want {
				t.Errorf("%s: Authenticate(%s, %s) = %v, want %v", state, tt.id, tt.secret, err, tt.want)
			}
		}
	}
	check("never loaded", ErrUnavailable, ErrUnavailable)
	confirmed = true
	check("not all of it loaded", ErrUnavailable, ErrUnavailable)
	if used := r.Used(); len(used) != 1 || used[0].Client != "orders" {
		t.Errorf("Used = %v, want the one success", used)
	}
	r.Complete(1)
	check("current", nil, ErrUnauthenticated)
	confirmed = false
	check("confirmation lost", ErrUnavailable, ErrUnavailable)
}

func TestEntitled(t *testing.T) {
	r := NewRegistry(time.Hour)
	version := r.Version()
	changed := func(what string) {
		t.Helper()
		if r.Version() == version {
			t.Errorf("Version is the same after %s", what)
		}
		version = r.Version()
	}
	expect := func(id string, scopes scope.List, ok bool) {
		t.Helper()
		if got, gotOK := r.Entitled(id, 0); got != scopes || gotOK != ok {
			t.Errorf("Entitled(%s) = %q, %v, want %q, %v", id, got, gotOK, scopes, ok)
		}
	}
	expect("a", "", false)
	a := stored("a")
	a.Scopes = "x y"
	r.ChangeStored([]Client{a}, nil)
	changed("a new client")
	expect("a", "x y", true)
	a.Scopes = "x"
	r.ChangeStored([]Client{a}, nil)
	changed("a scope taken away")
	expect("a", "x", true)
	a.Disabled = true
	r.ChangeStored([]Client{a}, nil)
	changed("disabling")
	expect("a", "", false)
	r.Complete(7)
	changed("the first load")
	r.Complete(8)
	if r.Version() != version {
		t.Error("Version changed although nobody got more or less")
	}
	replace(r, []Client{{ID: "f", Scopes: "z"}})
	changed("a file")
	expect("f", "z", true)
	replace(r, nil)
	changed("another file")
	expect("f", "", false)
}

func TestPage(t *testing.T) {
	r := NewRegistry(time.Hour)
	var configured, more []Client
	var want []string
	for i := range 500 {
		c := stored(fmt.Sprintf("c%04d", i*7919%1000))
		want = append(want, c.ID)
		if i%2 == 0 {
			c.Source = SourceFile
			configured = append(configured, c)
		} else {
			more = append(more, c)
		}
	}
	replace(r, configured)
	r.ChangeStored(append(more, stored(configured[0].ID)), nil)
	slices.Sort(want)
	for _, limit := range []int{1, 7, 100, 499, 500, 501} {
		var got []string
		for after, next := "", true; next; {
			var page []*Client
			page, next = r.Page(after, limit, nil)
			if len(page) > limit || next && len(page) < limit {
				t.Fatalf("a page of %d has %d clients, more = %v", limit, len(page), next)
			}
			for _, c := range page {
				got = append(got, c.ID)
				after = c.ID
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	if page, _ := r.Page("", 1000, func(c *Client) bool { return c.Source == SourceRegistry }); len(page) != len(more) {
		t.Errorf("%d clients of the registry, want %d: a hidden one does not count", len(page), len(more))
	}
}

func TestUsed(t *testing.T) {
	r := testRegistry()
	r.ChangeStored([]Client{stored("a", "one", "two")}, nil)
	use := func(id, secret string, at time.Time) {
		t.Helper()
		_, _ = r.Authenticate(id, textOf(secret), at)
	}
	expect := func(reason string, want ...Use) {
		t.Helper()
		got := map[Use]bool{}
		for _, u := range r.Used() {
			got[u] = true
		}
		wanted := map[Use]bool{}
		for _, u := range want {
			wanted[u] = true
		}
		if !maps.Equal(got, wanted) {
			t.Errorf("Used = %v, want %v: %s", got, wanted, reason)
		}
	}
	at := func(client, secret string, when time.Time) Use {
		return Use{SecretRef{client, secret}, when.Truncate(time.Second), client == "a"}
	}
	later := noon.Add(time.Minute + time.Millisecond)

	use("a", "wrong", noon)
	use("disabled", "fourth", noon)
	expect("refusals are no uses")
	use("a", "two", noon)
	use("orders", "first", noon)
	use("a", "two", later)
	expect("the last use of each", at("a", "s2", later), at("orders", "s1", noon))
	expect("each use is returned once")
	use("a", "two", noon)
	expect("an earlier use is no news")
	use("a", "one", noon)
	r.ChangeStored([]Client{stored("a", "one", "two", "three")}, nil)
	use("a", "three", later)
	uses := []Use{at("a", "s1", noon), at("a", "s3", later)}
	expect("a change of the client loses nothing", uses...)
	r.Unused(uses)
	expect("what was given back comes again", uses...)
	use("a", "one", later)
	r.ChangeStored([]Client{stored("a", "another")}, nil)
	expect("a secret that was replaced under its name is another one")
	if got := r.LastUsed(SecretRef{"a", "s1"}); !got.IsZero() {
		t.Errorf("LastUsed of a new secret = %v", got)
	}
	if got := r.LastUsed(SecretRef{"orders", "s1"}); !got.Equal(noon) {
		t.Errorf("LastUsed = %v, want %v", got, noon)
	}
}

// TestUsedWhileAllHappens: while many goroutines use, change and drain a client, no use is lost,
// and none is returned twice with the same time.
func TestUsedWhileAllHappens(t *testing.T) {
	r := NewRegistry(time.Hour)
	r.ChangeStored([]Client{stored("a", "one")}, nil)
	const seconds = 2000
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i := range seconds {
				if _, err := r.Authenticate("a", textOf("one"), noon.Add(time.Duration(i)*time.Second)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			r.ChangeStored([]Client{stored("a", "one")}, nil)
		}
	})
	var last time.Time
	drain := func() {
		for _, u := range r.Used() {
			if !u.At.After(last) {
				t.Errorf("a use at %v after one at %v", u.At, last)
			}
			last = u.At
		}
	}
	for range 200 {
		drain()
	}
	wg.Wait()
	drain()
	if want := noon.Add((seconds - 1) * time.Second); !last.Equal(want) {
		t.Errorf("the last use = %v, want %v", last, want)
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	r := testRegistry()
	secret, digest := NewSecret()
	r.Follow(func() bool { return true }, nil)
	c := stored("a")
	c.Secrets = []Secret{{ID: "s1", SHA256: digest}}
	r.ChangeStored([]Client{c}, nil)
	r.Complete(1)
	if _, err := r.Authenticate("a", secret.Reveal(), noon); err != nil {
		t.Fatal(err)
	}
	text, now := secret.Reveal(), noon
	for name, f := range map[string]func(){
		"Authenticate":           func() { now = now.Add(time.Second); _, _ = r.Authenticate("a", text, now) },
		"Authenticate, unknown":  func() { _, _ = r.Authenticate("b", text, now) },
		"Authenticate, disabled": func() { _, _ = r.Authenticate("disabled", text, now) },
		"Lookup":                 func() { _ = r.Lookup("a") },
		"Entitled":               func() { _, _ = r.Entitled("a", 0) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}

func TestBootstrap(t *testing.T) {
	secret, _ := NewSecret()
	c, err := Bootstrap(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(time.Hour)
	replace(r, []Client{c})
	admin, err := r.Authenticate(AdminID, secret.Reveal(), noon)
	if err != nil || admin.Source != SourceEnvironment || admin.CanIntrospect() {
		t.Fatalf("Authenticate = %v, %v, want the administrator of the environment", admin, err)
	}
	byDefault, err1 := admin.Grant("", nil)
	asked, err2 := admin.Grant(AdminScope, nil)
	if err1 != nil || err2 != nil || byDefault.Scope != "" || asked.Scope != AdminScope {
		t.Errorf("Grant = %v, %v, %v, %v, want the admin scope when asked for and nothing else", byDefault, err1, asked, err2)
	}
	text := secret.Reveal()
	for _, bad := range []string{"", "admin", "password", text[:52], text + "\n", text[:52] + "!", strings.ToLower(text)} {
		if _, err := Bootstrap(bad); !errors.Is(err, ErrSecretFormat) {
			t.Errorf("Bootstrap(%q) = %v, want ErrSecretFormat", bad, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	plain, issued := Issue("", noon.Add(time.Microsecond), noon.Add(time.Hour+time.Microsecond))
	if s := issued.Secret(); s.SHA256 != Digest(plain.Reveal()) || CheckSecret(plain.Reveal()) != nil ||
		!s.CreatedAt.Equal(noon) || !s.ExpiresAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("Issue = %+v, want the digest of the secret and times in milliseconds", s)
	}
}

func TestMayInspect(t *testing.T) {
	for _, tt := range []struct {
		policy   Introspection
		audience []string
		can, may bool
	}{
		{IntrospectNone, []string{"https://a"}, false, false},
		{IntrospectAudience, []string{"https://x", "https://a"}, true, true},
		{IntrospectAudience, []string{"https://x"}, true, false},
		{IntrospectAudience, []string{"https://a/"}, true, false}, // compared as text
		{IntrospectAudience, nil, true, false},                    // meant for nobody in particular
		{IntrospectAny, nil, true, true},
		{IntrospectAny, []string{"https://x"}, true, true},
		{Introspection(9), []string{"https://a"}, false, false}, // what is not known is the strictest
	} {
		c := &Client{Audiences: []string{"https://a", "https://b"}, Introspect: tt.policy}
		if c.CanIntrospect() != tt.can || c.MayInspect(tt.audience) != tt.may {
			t.Errorf("policy %v, audience %v: %v, %v, want %v, %v", tt.policy, tt.audience, c.CanIntrospect(), c.MayInspect(tt.audience), tt.can, tt.may)
		}
	}
	for _, text := range []string{"none", "audience", "any"} {
		if p, err := ParseIntrospection(text); err != nil || p.String() != text {
			t.Errorf("ParseIntrospection(%s) = %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "all", "Any", "true"} {
		if _, err := ParseIntrospection(text); err == nil {
			t.Errorf("ParseIntrospection(%q) succeeded", text)
		}
	}
}
