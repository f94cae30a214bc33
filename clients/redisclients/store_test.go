package redisclients

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"snowgate/clients"
	"snowgate/tokens/tokenstest/redistest"
)

// testLifeOfAClient creates, changes and deletes a client, and checks the results on the gateway
// that makes the changes and on another one.
func testLifeOfAClient(t *testing.T, rdb redis.UniversalClient) {
	ctx, here, there := t.Context(), newGateway(rdb), newGateway(rdb)
	here.refresh(t, true)
	there.refresh(t, true)

	plain, credential := clients.Issue("", noon, time.Time{})
	made, err := here.Create(ctx, document("orders"), credential)
	if err != nil || made.Before != nil || made.Note != "" || made.Secret.ID != "s1" || made.After.Revision != 1 {
		t.Fatalf("Create = %+v, %v", made, err)
	}
	want := clients.Client{ID: "orders", Secrets: []clients.Secret{made.Secret}, Source: clients.SourceRegistry,
		Revision: 1, Generation: 1, CreatedAt: noon, UpdatedAt: noon}
	document("orders").ApplyTo(&want)
	agree := func(what string) {
		t.Helper()
		there.refresh(t, false)
		loaded, err := here.Load(ctx, "orders")
		if diff := cmp.Diff(&want, loaded); diff != "" || err != nil {
			t.Errorf("%s: Load: %v (-want +got):\n%s", what, err, diff)
		}
		want.DefaultTTL = time.Hour
		for name, g := range map[string]*gateway{"this": here, "another": there} {
			if diff := cmp.Diff(&want, g.registry.Lookup("orders")); diff != "" {
				t.Errorf("%s, on %s gateway (-want +got):\n%s", what, name, diff)
			}
		}
		want.DefaultTTL = 0
	}
	agree("created")
	if _, err := there.registry.Authenticate("orders", plain.Reveal(), noon); err != nil {
		t.Errorf("Authenticate on another gateway = %v", err)
	}

	changed := document("orders")
	changed.Scopes, changed.Disabled = "a", true
	updated, err := there.Update(ctx, changed, want.Revision)
	if err != nil || updated.Note != stopped || updated.Before.Disabled || !updated.After.Disabled {
		t.Errorf("Update = %+v, %v", updated, err)
	}
	changed.ApplyTo(&want)
	want.Revision, want.Generation = 2, 2
	here.refresh(t, false)
	agree("disabled")
	if _, err := here.registry.Authenticate("orders", plain.Reveal(), noon); err != clients.ErrUnauthenticated {
		t.Errorf("Authenticate of a disabled client = %v", err)
	}
	changed.Disabled = false
	if _, err := here.Update(ctx, changed, 2); err != nil {
		t.Errorf("Update = %v", err)
	}
	changed.ApplyTo(&want)
	want.Revision = 3
	agree("enabled: tokens of before stay dead")

	added, err := here.AddSecret(ctx, "orders", issue(), time.Time{}, 3)
	if err != nil || added.Secret.ID != "s2" || len(added.Before.Secrets) != 1 || len(added.After.Secrets) != 2 {
		t.Errorf("AddSecret = %+v, %v", added, err)
	}
	want.Secrets, want.Revision = append(want.Secrets, added.Secret), 4
	agree("two secrets")
	removed, err := here.RemoveSecret(ctx, "orders", "s1", 4)
	if err != nil || removed.Note != "" || removed.Secret.ID != "s1" {
		t.Errorf("RemoveSecret = %+v, %v", removed, err)
	}
	want.Secrets, want.Revision = want.Secrets[1:], 5
	agree("one secret")
	if removed, err = here.RemoveSecret(ctx, "orders", "s2", 0); err != nil || removed.Note != noSecrets {
		t.Errorf("RemoveSecret of the last = %+v, %v, want a note", removed, err)
	}
	want.Secrets, want.Revision = nil, 6
	agree("no secret")

	gone, err := here.Delete(ctx, "orders", 6)
	if err != nil || gone.After != nil || gone.Before.ID != "orders" || gone.Note == "" {
		t.Errorf("Delete = %+v, %v", gone, err)
	}
	there.refresh(t, false)
	if g, _, _ := strings.Cut(rdb.HGet(ctx, "{sg}:rev", "g:orders").Val(), ":"); g != "7" {
		t.Errorf("the generation of a deleted client = %q, want 7", g)
	}
	if here.ids() != "" || there.ids() != "" {
		t.Errorf("after Delete there are %q and %q", here.ids(), there.ids())
	}
	if again := create(t, there, "orders"); again.Generation != 8 || again.Revision != 8 {
		t.Errorf("created again: %+v, want generation and revision 8", again)
	}
	values := rdb.HGetAll(ctx, "{sg}:rev").Val()
	if g, end, _ := strings.Cut(values["g:orders"], ":"); values["v"] != "8" || g != "8" || len(end) != 13 {
		t.Errorf("{sg}:rev = %v, want revision and generation 8", values)
	}
}

func testRefusals(t *testing.T, rdb redis.UniversalClient) {
	ctx, here, there := t.Context(), newGateway(rdb), newGateway(rdb)
	if err := here.registry.ReplaceFile([]clients.Client{{ID: "file"}}); err != nil {
		t.Fatal(err)
	}
	there.refresh(t, true)
	create(t, here, "a")
	d := document("a")
	file := document("file")
	none := clients.Credential{}
	check := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) || errors.Is(got, clients.ErrUnavailable) {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	for name, g := range map[string]*gateway{"who made it": here, "who has not heard of it": there} {
		_, err := g.Create(ctx, d, issue())
		check("Create, "+name, err, clients.ErrExists)
		_, err = g.Update(ctx, d, 99)
		check("Update, "+name, err, clients.ErrConflict)
		_, err = g.Delete(ctx, "a", 99)
		check("Delete, "+name, err, clients.ErrConflict)
		_, err = g.AddSecret(ctx, "a", issue(), time.Time{}, 99)
		check("AddSecret, "+name, err, clients.ErrConflict)
		_, err = g.RemoveSecret(ctx, "a", "s9", 0)
		check("RemoveSecret, "+name, err, clients.ErrNotFound)
		_, err = g.Update(ctx, document("b"), 0)
		check("Update of nobody, "+name, err, clients.ErrNotFound)
		_, err = g.Delete(ctx, "b", 0)
		check("Delete of nobody, "+name, err, clients.ErrNotFound)
		_, err = g.Load(ctx, "b")
		check("Load of nobody, "+name, err, clients.ErrNotFound)
		_, err = g.Load(ctx, "{sg}:c *\r\n")
		check("Load of nonsense, "+name, err, clients.ErrNotFound)
		_, err = g.Create(ctx, document(".."), issue())
		check("Create of nonsense, "+name, err, clients.ErrDocument)
	}
	_, err := here.Create(ctx, file, issue())
	check("Create of a configured client", err, clients.ErrExists)
	_, err = here.Update(ctx, file, 0)
	check("Update of a configured client", err, clients.ErrReadOnly)
	_, err = here.Delete(ctx, "file", 0)
	check("Delete of a configured client", err, clients.ErrReadOnly)
	_, err = here.AddSecret(ctx, "file", issue(), time.Time{}, 0)
	check("AddSecret to a configured client", err, clients.ErrReadOnly)
	_, err = here.RemoveSecret(ctx, "file", "s1", 0)
	check("RemoveSecret of a configured client", err, clients.ErrReadOnly)
	if _, err := here.AddSecret(ctx, "a", none, time.Time{}, 0); err == nil {
		t.Error("AddSecret of nothing succeeded")
	}

	// A client that a configured one hides can be deleted.
	create(t, there, "file")
	here.refresh(t, false)
	_, err = here.Delete(ctx, "file", 0)
	check("Delete of a hidden client", err, nil)
	if here.registry.Stored("file") != nil || here.registry.Lookup("file") == nil {
		t.Error("the wrong one of two clients is gone")
	}

	// Another gateway has changed the client. Without an expected revision, the change is tried
	// again.
	if _, err := there.Update(ctx, d, 0); err != nil {
		t.Fatal(err)
	}
	_, err = here.Update(ctx, d, here.registry.Stored("a").Revision)
	check("Update of an old revision", err, clients.ErrConflict)
	_, err = here.Update(ctx, d, 0)
	check("Update of any revision", err, nil)
	there.refresh(t, false)
	if _, err := here.Delete(ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	_, err = there.Update(ctx, d, 0)
	check("Update of a client that another gateway has deleted", err, clients.ErrNotFound)
	_, err = there.Delete(ctx, "a", 0)
	check("Delete of a client that another gateway has deleted", err, clients.ErrNotFound)
}

func testConcurrentCreates(t *testing.T, rdb redis.UniversalClient) {
	gateways := []*gateway{newGateway(rdb), newGateway(rdb)}
	var made, refused atomic.Int64
	var secret atomic.Value
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			plain, credential := clients.Issue("", noon, time.Time{})
			switch _, err := gateways[i%2].Create(t.Context(), document("one"), credential); {
			case err == nil:
				made.Add(1)
				secret.Store(plain.Reveal())
			case errors.Is(err, clients.ErrExists):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 || refused.Load() != 199 {
		t.Errorf("%d creates of 200 succeeded and %d found it taken, want 1 and 199", made.Load(), refused.Load())
	}
	for _, g := range gateways {
		g.refresh(t, false)
		if _, err := g.registry.Authenticate("one", secret.Load().(string), noon); err != nil {
			t.Errorf("the secret that was given out is not good: %v", err)
		}
	}
}

// testConcurrentChanges: concurrent changes without an expected revision all succeed, one after the
// other.
func testConcurrentChanges(t *testing.T, rdb redis.UniversalClient) {
	gateways := []*gateway{newGateway(rdb), newGateway(rdb)}
	create(t, gateways[0], "one")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 { // a change gives up after ten conflicts, and is tried again
				_, err := gateways[i%2].AddSecret(t.Context(), "one", issue(), time.Time{}, 0)
				if err == nil || !errors.Is(err, errBusy) {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
			t.Error("never got its turn")
		})
	}
	wg.Wait()
	c, err := gateways[0].Load(t.Context(), "one")
	if err != nil || len(c.Secrets) != 9 || c.Revision != 9 || c.Secrets[8].ID != "s9" {
		t.Errorf("after 8 concurrent AddSecret: %+v, %v, want s1 to s9", c, err)
	}
}

func TestSecretsOfAClient(t *testing.T) {
	t.Parallel()
	ctx, g := t.Context(), newGateway(connect(t, startEmbedded(t)))
	create(t, g, "a")
	for i := 2; i <= clients.MaxSecrets; i++ {
		if c, err := g.AddSecret(ctx, "a", issue(), time.Time{}, 0); err != nil || c.Secret.ID != "s"+strconv.Itoa(i) {
			t.Fatalf("AddSecret %d = %+v, %v", i, c.Secret, err)
		}
	}
	if _, err := g.AddSecret(ctx, "a", issue(), time.Time{}, 0); !errors.Is(err, clients.ErrTooManySecrets) {
		t.Errorf("AddSecret of one too many = %v", err)
	}
	if _, err := g.RemoveSecret(ctx, "a", "s3", 0); err != nil {
		t.Fatal(err)
	}
	_, named := clients.Issue("s4", noon, time.Time{})
	if _, err := g.AddSecret(ctx, "a", named, time.Time{}, 0); !errors.Is(err, clients.ErrExists) {
		t.Errorf("AddSecret under a name that is taken = %v", err)
	}
	_, unnamed := clients.Issue("", noon, time.Time{})
	if _, err := g.AddSecret(ctx, "a", unnamed, time.Time{}, 0); err != nil {
		t.Errorf("AddSecret of a secret without a name = %v", err)
	}
	if _, err := g.AddSecret(ctx, "a", unnamed, time.Time{}, 0); !errors.Is(err, clients.ErrExists) {
		t.Errorf("AddSecret of a secret that is there = %v", err)
	}

	// Rotation in one change: the other secrets expire at the given time, or earlier.
	change, err := g.AddSecret(ctx, "a", issue(), noon.Add(time.Hour), 0)
	if !errors.Is(err, clients.ErrTooManySecrets) {
		t.Errorf("AddSecret of one too many = %v, %v", change, err)
	}
	if change, err = g.AddSecret(ctx, "a", issue(), noon, 0); err != nil || len(change.After.Secrets) != 1 || change.Secret.ID != "s18" {
		t.Fatalf("rotation without overlap = %+v, %v, want one secret", change.After, err)
	}
	if _, err := g.AddSecret(ctx, "a", issue(), noon.Add(time.Hour), 0); err != nil {
		t.Fatal(err)
	}
	if change, err = g.AddSecret(ctx, "a", issue(), noon.Add(2*time.Hour), 0); err != nil {
		t.Fatal(err)
	}
	var ends []string
	for _, s := range change.After.Secrets {
		ends = append(ends, s.ID+" "+s.ExpiresAt.Format("15:04"))
	}
	if got, want := strings.Join(ends, ", "), "s18 13:00, s19 14:00, s20 00:00"; got != want {
		t.Errorf("secrets end %s, want %s", got, want)
	}
	if !change.Before.Secrets[1].ExpiresAt.IsZero() {
		t.Error("the client of before was changed")
	}
}

// TestRoundTrips: every change is one round trip and sends one push.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), new(wire)
	url := redistest.Start(t).URL()
	g := newGateway(cutting(t, url, w))
	create(t, g, "warm-up") // loads the scripts
	if _, err := g.Delete(ctx, "warm-up", 0); err != nil {
		t.Fatal(err)
	}
	g.refresh(t, true)
	listener := connect(t, url).Subscribe(ctx, "{sg}:push")
	defer listener.Close()
	if _, err := listener.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"Create", func() error { _, err := g.Create(ctx, document("a"), issue()); return err }},
		{"Update", func() error { _, err := g.Update(ctx, document("a"), 0); return err }},
		{"AddSecret", func() error { _, err := g.AddSecret(ctx, "a", issue(), time.Time{}, 0); return err }},
		{"RemoveSecret", func() error { _, err := g.RemoveSecret(ctx, "a", "s1", 0); return err }},
		{"Delete", func() error { _, err := g.Delete(ctx, "a", 0); return err }},
	} {
		before := w.scripts
		if err := step.do(); err != nil {
			t.Fatalf("%s = %v", step.name, err)
		}
		if n := w.scripts - before; n != 1 {
			t.Errorf("%s takes %d round trips, want 1", step.name, n)
		}
		message, err := listener.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(message.Payload)
		if len(words) != 4 || words[0] != "client" || words[1] != "a" || len(words[3]) != 13 {
			t.Errorf("%s pushes %q, want client, id, revision, ms", step.name, message.Payload)
		}
	}
}

func testLastUsed(t *testing.T, rdb redis.UniversalClient) {
	ctx, here, there := t.Context(), newGateway(rdb), newGateway(rdb)
	if err := here.registry.ReplaceFile([]clients.Client{{ID: "file", Secrets: []clients.Secret{{ID: "f"}}}}); err != nil {
		t.Fatal(err)
	}
	a := create(t, here, "a")
	there.refresh(t, true)
	s1, f := clients.SecretRef{Client: "a", Secret: "s1"}, clients.SecretRef{Client: "file", Secret: "f"}
	expect := func(what string, want map[clients.SecretRef]time.Time) {
		t.Helper()
		got, err := there.LastUsed(ctx, a, here.registry.Lookup("file"))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: LastUsed: %v (-want +got):\n%s", what, err, diff)
		}
	}
	touch := func(uses ...clients.Use) {
		t.Helper()
		if err := here.Touch(ctx, uses); err != nil {
			t.Fatal(err)
		}
	}
	expect("nothing was used", map[clients.SecretRef]time.Time{})
	touch(clients.Use{SecretRef: s1, At: noon, Registry: true}, clients.Use{SecretRef: f, At: noon.Add(time.Hour)},
		clients.Use{SecretRef: clients.SecretRef{Client: "gone", Secret: "s1"}, At: noon, Registry: true})
	expect("both", map[clients.SecretRef]time.Time{s1: noon, f: noon.Add(time.Hour)})
	touch(clients.Use{SecretRef: s1, At: noon.Add(-time.Hour), Registry: true})
	expect("an earlier use is no news", map[clients.SecretRef]time.Time{s1: noon, f: noon.Add(time.Hour)})
	if n := rdb.HLen(ctx, "{sg}:cu").Val(); n != 2 {
		t.Errorf("%d last uses are kept, want 2: that of a client that is gone is passed over", n)
	}
	if _, err := here.RemoveSecret(ctx, "a", "s1", 0); err != nil {
		t.Fatal(err)
	}
	expect("removed with the secret", map[clients.SecretRef]time.Time{f: noon.Add(time.Hour)})
	if _, err := here.AddSecret(ctx, "a", issue(), time.Time{}, 0); err != nil {
		t.Fatal(err)
	}
	touch(clients.Use{SecretRef: s1, At: noon, Registry: true})
	if _, err := here.Delete(ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	expect("removed with the client", map[clients.SecretRef]time.Time{f: noon.Add(time.Hour)})
}

func TestFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := connect(t, server.URL())
	ctx, g, other := t.Context(), newGateway(rdb), newGateway(rdb)
	plain, credential := clients.Issue("", noon, time.Time{})
	made, err := g.Create(ctx, document("a"), credential)
	if err != nil {
		t.Fatal(err)
	}
	g.refresh(t, true)
	ref := clients.SecretRef{Client: "a", Secret: "s1"}
	if _, err := g.registry.Authenticate("a", plain.Reveal(), noon); err != nil {
		t.Fatal(err)
	}
	if used, err := g.LastUsed(ctx, made.After); err != nil || !used[ref].Equal(noon) {
		t.Errorf("LastUsed before the flush = %v, %v, want that of this gateway", used, err)
	}
	server.Stop()
	if err := g.Flush(ctx); !errors.Is(err, clients.ErrUnavailable) {
		t.Errorf("Flush without Redis = %v", err)
	}
	server.Restart()
	g.refresh(t, true) // the client comes back
	if err := g.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if used, err := other.LastUsed(ctx, made.After); err != nil || !used[ref].Equal(noon) {
		t.Errorf("LastUsed after the second flush = %v, %v", used, err)
	}
}

// TestFullRedis: changes work while Redis is full, so that an operator can still disable or delete
// a client.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	rdb := connect(t, server.URL())
	ctx, g := t.Context(), newGateway(rdb)
	create(t, g, "before")
	full := false
	for i := 0; i < 10_000 && !full; i++ {
		err := rdb.Set(ctx, fmt.Sprint("filler", i), strings.Repeat("x", 4096), 0).Err()
		full = err != nil && strings.HasPrefix(err.Error(), "OOM")
	}
	if !full {
		t.Fatal("Redis did not get full")
	}
	create(t, g, "after")
	if _, err := g.Delete(ctx, "before", 0); err != nil {
		t.Errorf("Delete = %v", err)
	}
	if err := g.Touch(ctx, []clients.Use{{SecretRef: clients.SecretRef{Client: "after", Secret: "s1"}, At: noon, Registry: true}}); err != nil {
		t.Errorf("Touch = %v", err)
	}
	g.refresh(t, true)
	g.refresh(t, false)
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := connect(t, server.URL())
	g := newGateway(rdb)
	known := create(t, g, "a")
	g.refresh(t, true)
	check := func(state string) {
		t.Helper()
		for name, do := range map[string]func() error{
			"Create":       func() error { _, err := g.Create(t.Context(), document("b"), issue()); return err },
			"Update":       func() error { _, err := g.Update(t.Context(), document("a"), 0); return err },
			"Delete":       func() error { _, err := g.Delete(t.Context(), "a", 0); return err },
			"AddSecret":    func() error { _, err := g.AddSecret(t.Context(), "a", issue(), time.Time{}, 0); return err },
			"RemoveSecret": func() error { _, err := g.RemoveSecret(t.Context(), "a", "s1", 0); return err },
			"Load":         func() error { _, err := g.Load(t.Context(), "a"); return err },
			"LastUsed":     func() error { _, err := g.LastUsed(t.Context(), known); return err },
			"Touch":        func() error { return g.Touch(t.Context(), []clients.Use{{At: noon}}) },
			"Poll":         func() error { return g.Poll(t.Context()) },
			"Refresh":      func() error { return g.Refresh(t.Context()) },
		} {
			err := do()
			var failed *Error
			if !errors.Is(err, clients.ErrUnavailable) || !errors.As(err, &failed) || failed.Err == nil {
				t.Errorf("%s: %s = %v, want ErrUnavailable with its cause", state, name, err)
			}
			if err != nil && strings.Contains(err.Error(), server.Password()) {
				t.Errorf("%s: %s repeats the password: %v", state, name, err)
			}
		}
		if g.ids() != "a" {
			t.Errorf("%s: the gateway knows %q, want what it knew", state, g.ids())
		}
	}
	server.Do("REPLICAOF", "127.0.0.1", "1")
	if err := g.Poll(t.Context()); !errors.Is(err, clients.ErrUnavailable) {
		t.Errorf("Refresh from a replica = %v, want ErrUnavailable: its copy may be old", err)
	}
	if _, err := g.Load(t.Context(), "nobody"); !errors.Is(err, clients.ErrUnavailable) {
		t.Errorf("Load from a replica = %v, want ErrUnavailable", err)
	}
	server.Do("REPLICAOF", "NO", "ONE")
	server.Stop()
	check("stopped")
	server.Restart()
	server.Do("SET", "{sg}:c", "of another type")
	if err := g.Refresh(t.Context()); !errors.Is(err, clients.ErrUnavailable) {
		t.Errorf("Refresh with a key of another type = %v", err)
	}
}
