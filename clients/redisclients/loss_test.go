package redisclients

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"snowgate/clients"
)

// sharedKeys are the keys that a change writes.
var sharedKeys = []string{"{sg}:rev", "{sg}:c", "{sg}:cs", "{sg}:cm"}

// backup is the content of the keys at one time, such as that of a lagging replica that is
// promoted.
type backup struct {
	hashes map[string]map[string]string
	index  []redis.Z
}

func save(t *testing.T, rdb redis.UniversalClient) backup {
	b := backup{hashes: map[string]map[string]string{}}
	for _, key := range sharedKeys {
		if key != "{sg}:cs" {
			b.hashes[key] = rdb.HGetAll(t.Context(), key).Val()
		}
	}
	b.index = rdb.ZRangeWithScores(t.Context(), "{sg}:cs", 0, -1).Val()
	return b
}

func (b backup) restore(t *testing.T, rdb redis.UniversalClient) {
	rdb.Del(t.Context(), sharedKeys...)
	for key, fields := range b.hashes {
		if len(fields) > 0 {
			rdb.HSet(t.Context(), key, fields)
		}
	}
	if len(b.index) > 0 {
		rdb.ZAdd(t.Context(), "{sg}:cs", b.index...)
	}
}

func (g *gateway) wantIDs(t *testing.T, what, want string) {
	t.Helper()
	if got := g.ids(); got != want {
		t.Errorf("%s: the gateway knows %q, want %q", what, got, want)
	}
}

func (g *gateway) wantLoss(t *testing.T, restored int) {
	t.Helper()
	var lost *LostError
	if len(g.reports) != 1 || !errors.As(g.reports[0], &lost) || lost.Restored != restored {
		t.Errorf("reports = %v, want that %d clients were given back", g.reports, restored)
	}
	g.reports = nil
}

// Running gateways write back what Redis has lost, and a new one learns of it.
func testWiped(t *testing.T, rdb redis.UniversalClient) {
	first, second := newGateway(rdb), newGateway(rdb)
	for _, id := range []string{"a", "b", "c"} {
		create(t, first, id)
	}
	if _, err := first.Delete(t.Context(), "c", 0); err != nil {
		t.Fatal(err)
	}
	first.refresh(t, true)
	second.refresh(t, true)
	want := first.known()
	wipe := func() {
		t.Helper()
		if err := rdb.Del(t.Context(), append(sharedKeys, "{sg}:cu")...).Err(); err != nil {
			t.Fatal(err)
		}
	}

	wipe()
	if _, err := first.Load(t.Context(), "a"); !errors.Is(err, clients.ErrUnavailable) {
		t.Errorf("Load of a client that Redis has forgotten = %v, want ErrUnavailable", err)
	}
	fresh := newGateway(rdb)
	fresh.refresh(t, true)
	fresh.wantIDs(t, "new, and nothing is there", "")
	first.refresh(t, false) // Poll notices the loss
	first.wantLoss(t, 3)
	second.refresh(t, false)
	fresh.refresh(t, false)
	for name, g := range map[string]*gateway{"first": first, "second": second, "fresh": fresh} {
		if diff := cmp.Diff(want, g.known()); diff != "" {
			t.Errorf("%s gateway (-want +got):\n%s", name, diff)
		}
		if len(g.reports) > 0 {
			t.Errorf("%s gateway reports %v", name, g.reports)
		}
	}
	if v := first.Revision(); v <= 4 || second.Revision() != v || fresh.Revision() != v {
		t.Errorf("revisions %d, %d, %d, want the same above 4", v, second.Revision(), fresh.Revision())
	}
	wantWhole(t, rdb)

	// Another part of the gateway may have restored the revision alone, which may even have grown
	// since.
	wipe()
	rdb.HSet(t.Context(), "{sg}:rev", "v", 100)
	second.refresh(t, false)
	second.wantLoss(t, 3)

	// A change is made before any gateway has noticed the loss.
	wipe()
	if _, err := second.Create(t.Context(), document("a"), issue()); !errors.Is(err, clients.ErrExists) {
		t.Errorf("Create of a client that Redis has forgotten = %v, want ErrExists", err)
	}
	second.wantLoss(t, 3)
	wipe()
	create(t, second, "d")
	second.wantLoss(t, 3)
	create(t, second, "e")
	wipe()
	if _, err := second.Delete(t.Context(), "e", second.registry.Stored("e").Revision); err != nil {
		t.Errorf("Delete of a client that Redis has forgotten = %v", err)
	}
	second.wantLoss(t, 5)
	fresh = newGateway(rdb)
	fresh.refresh(t, false)
	fresh.wantIDs(t, "after all", "a b d")
	wantWhole(t, rdb)
}

// testPartsLost: Redis loses a part of the data.
func testPartsLost(t *testing.T, rdb redis.UniversalClient) {
	g := newGateway(rdb)
	for _, id := range []string{"a", "b", "c"} {
		create(t, g, id)
	}
	if _, err := g.Delete(t.Context(), "c", 0); err != nil {
		t.Fatal(err)
	}
	g.refresh(t, true)
	want := g.known()
	check := func(what string, by *gateway, restored int) {
		t.Helper()
		by.refresh(t, false)
		by.wantLoss(t, restored)
		by.refresh(t, false)
		fresh := newGateway(rdb)
		fresh.refresh(t, true)
		if diff := cmp.Diff(want, fresh.known()); diff != "" || len(by.reports)+len(fresh.reports) > 0 {
			t.Errorf("%s: %v, %v (-want +got):\n%s", what, by.reports, fresh.reports, diff)
		}
		wantWhole(t, rdb)
	}
	rdb.Del(t.Context(), "{sg}:c")
	check("the documents", g, 2)
	rdb.HDel(t.Context(), "{sg}:c", "a")
	check("one document", g, 1)
	rdb.Del(t.Context(), "{sg}:cs")
	check("the list of changes", g, 3)
	rdb.Del(t.Context(), "{sg}:cs")
	check("the list of changes, and nobody knew it", newGateway(rdb), 2)
	rdb.ZRem(t.Context(), "{sg}:cs", "b")
	check("one of the list", newGateway(rdb), 1)
}

// testRolledBack: Redis returns to an earlier state, as after a failover to a replica that lagged.
func testRolledBack(t *testing.T, rdb redis.UniversalClient) {
	ctx, first, second := t.Context(), newGateway(rdb), newGateway(rdb)
	create(t, first, "a")
	create(t, first, "b")
	second.refresh(t, true)
	first.refresh(t, true)
	earlier := save(t, rdb)

	d := document("a")
	d.Scopes = "z"
	if _, err := first.Update(ctx, d, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Delete(ctx, "b", 0); err != nil {
		t.Fatal(err)
	}
	earlier.restore(t, rdb)
	second.refresh(t, true)
	second.wantIDs(t, "one that has missed all of it", "a b")
	first.refresh(t, true)
	first.wantLoss(t, 2)
	second.refresh(t, false)
	for name, g := range map[string]*gateway{"first": first, "second": second} {
		g.wantIDs(t, name, "a")
		if c := g.registry.Lookup("a"); c == nil || c.Scopes != "z" {
			t.Errorf("%s gateway: a = %+v, want the update", name, c)
		}
	}

	// After another change, the revision does not show the loss.
	earlier = save(t, rdb)
	if _, err := first.Update(ctx, document("a"), 0); err != nil {
		t.Fatal(err)
	}
	first.refresh(t, false)
	earlier.restore(t, rdb)
	create(t, second, "c")
	second.refresh(t, false) // so the restored revision is not newer
	first.refresh(t, true)
	first.wantLoss(t, 1)
	second.refresh(t, false)
	if c := second.registry.Lookup("a"); c == nil || c.Scopes != "a b" {
		t.Errorf("a = %+v, want the last update", c)
	}
	first.wantIDs(t, "first", "a c")
	second.wantIDs(t, "second", "a c")
	wantWhole(t, rdb)
}

// testDeletionIsNotTheLastWord: a gateway that knows of a deletion, but not of the creation after
// it, does not delete the client in Redis.
func testDeletionIsNotTheLastWord(t *testing.T, rdb redis.UniversalClient) {
	first, second := newGateway(rdb), newGateway(rdb)
	create(t, first, "a")
	if _, err := first.Delete(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	create(t, second, "a")
	second.refresh(t, true)
	rdb.Del(t.Context(), sharedKeys...)
	first.refresh(t, true)
	first.wantIDs(t, "who knows of the deletion", "")
	second.refresh(t, true)
	first.refresh(t, false)
	first.wantIDs(t, "then", "a")
}

// Data that is written back never replaces a later version.
func testRestoreOfTheOld(t *testing.T, rdb redis.UniversalClient) {
	g := newGateway(rdb)
	old, err := encodeRecord(create(t, g, "a"))
	if err != nil {
		t.Fatal(err)
	}
	create(t, g, "b")
	if _, err := g.Update(t.Context(), document("a"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Delete(t.Context(), "b", 0); err != nil {
		t.Fatal(err)
	}
	before := content(t, rdb)
	forgotten := strings.Replace(old, `"id":"a"`, `"id":"b"`, 1)
	if err := g.restore(t.Context(), map[string]loss{"a": {1, old}, "b": {2, forgotten}}); err != nil {
		t.Fatal(err)
	}
	if err := g.restore(t.Context(), map[string]loss{"a": {1, ""}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, content(t, rdb)); diff != "" || len(g.reports) > 0 {
		t.Errorf("reports %v (-want +got):\n%s", g.reports, diff)
	}
}

// A version that was read while a later one was written does not replace it.
func TestCopyKeepsTheLater(t *testing.T) {
	for _, tt := range []struct {
		known, next version
		news        bool
		reason      string
	}{
		{version{5, alive}, version{4, alive}, false, "an earlier change"},
		{version{5, alive}, version{5, alive}, false, "the same again"},
		{version{5, alive}, version{6, alive}, true, "a later change"},
		{version{5, alive}, version{4, deleted}, false, "deleted before it was made"},
		{version{5, alive}, version{5, deleted}, false, "the document was lost by itself"},
		{version{5, alive}, version{6, deleted}, true, "deleted"},
		{version{5, deleted}, version{4, alive}, false, "what was deleted"},
		{version{5, deleted}, version{5, alive}, true, "the document is there again"},
		{version{5, damaged}, version{5, alive}, true, "it can be read again"},
		{version{5, alive}, version{0, deleted}, false, "Redis knows nothing of it"},
	} {
		c := copied{versions: map[string]version{}}
		c.set("a", tt.known)
		if got := c.set("a", tt.next); got != tt.news {
			t.Errorf("%+v after %+v: news = %v, want %v: %s", tt.next, tt.known, got, tt.news, tt.reason)
		}
		if sum := c.count[alive] + c.count[deleted] + c.count[damaged]; sum != 1 || c.count[c.versions["a"].state] != 1 {
			t.Errorf("%+v after %+v: counts %v of %v", tt.next, tt.known, c.count, c.versions)
		}
	}
}

func testDamagedDocument(t *testing.T, rdb redis.UniversalClient) {
	g := newGateway(rdb)
	create(t, g, "a")
	create(t, g, "b")
	g.refresh(t, true)
	ctx := t.Context()
	rdb.HSet(ctx, "{sg}:c", "a", `{"v":2,"rev":3,"gen":1,"op":"","id":"a"}`)
	rdb.HSet(ctx, "{sg}:c", "x", `nonsense`)
	rdb.ZAdd(ctx, "{sg}:cs", redis.Z{Score: 3, Member: "a"}, redis.Z{Score: 4, Member: "x"})
	rdb.HSet(ctx, "{sg}:rev", "v", 4)
	for range 3 {
		g.refresh(t, false)
	}
	g.refresh(t, true)
	if len(g.reports) != 2 {
		t.Errorf("reports = %v, want two, and each once", g.reports)
	}
	g.wantIDs(t, "what it knew before stays", "a b")
	if g.Revision() != 4 {
		t.Errorf("Revision = %d, want 4", g.Revision())
	}
	for _, id := range []string{"a", "x"} {
		_, err := g.Load(ctx, id)
		_, err2 := g.Update(ctx, document(id), 0)
		if !errors.Is(err, clients.ErrUnavailable) || !errors.Is(err2, clients.ErrUnavailable) {
			t.Errorf("Load(%s) and Update = %v, %v, want ErrUnavailable", id, err, err2)
		}
	}
	create(t, g, "c")
	rdb.HSet(ctx, "{sg}:c", "x", rdb.HGet(ctx, "{sg}:c", "c").Val())
	g.refresh(t, true)
	g.wantIDs(t, "the document of another client", "a b c")
}

// testNewerMembers: members that only a newer version knows are ignored, reported once for each
// change, and still there after this version has changed the client.
func testNewerMembers(t *testing.T, rdb redis.UniversalClient) {
	g := newGateway(rdb)
	create(t, g, "a")
	ctx := t.Context()
	const members = `"more":{"a":[1,"}"]},"zone":"east & west"`
	text := rdb.HGet(ctx, "{sg}:c", "a").Val()
	rdb.HSet(ctx, "{sg}:c", "a", strings.TrimSuffix(strings.Replace(text, `"rev":1,`, `"rev":2,`, 1), "}")+`,"zone":"east & west","more":{"a":[1,"}"]}}`)
	rdb.ZAdd(ctx, "{sg}:cs", redis.Z{Score: 2, Member: "a"})
	rdb.HSet(ctx, "{sg}:rev", "v", 2)
	other := newGateway(rdb)
	for _, g := range []*gateway{g, other} {
		g.refresh(t, false)
		g.refresh(t, true)
		newer := new(NewerError)
		if len(g.reports) != 1 || !errors.As(g.reports[0], &newer) || newer.Client != "a" || newer.Members != members {
			t.Errorf("reports = %v, want the members named, once", g.reports)
		}
	}
	d := document("a")
	d.Name = "changed"
	if _, err := g.Update(ctx, d, 2); err != nil {
		t.Fatal(err)
	}
	if got := rdb.HGet(ctx, "{sg}:c", "a").Val(); !strings.HasSuffix(got, ","+members+"}") || !strings.Contains(got, `"name":"changed"`) {
		t.Errorf("after a change the document is %s, want %s kept", got, members)
	}
}

// testManyClients: there are more clients than fit into a page, and several with the same revision,
// which can happen after a loss.
func testManyClients(t *testing.T, rdb redis.UniversalClient) {
	const many = 2*documentsAtOnce + 20
	ctx := t.Context()
	documents := map[string]string{}
	var index []redis.Z
	for i := range many {
		c := clients.Client{ID: fmt.Sprintf("c%05d", i), Revision: uint64(i/30 + 1)}
		text, err := encodeRecord(&c)
		if err != nil {
			t.Fatal(err)
		}
		documents[c.ID] = text
		index = append(index, redis.Z{Score: float64(c.Revision), Member: c.ID})
	}
	rdb.HSet(ctx, "{sg}:c", documents)
	rdb.ZAdd(ctx, "{sg}:cs", index...)
	rdb.HSet(ctx, "{sg}:rev", "v", many)
	g := newGateway(rdb)
	g.refresh(t, false)
	if n := len(g.known()); n != many || g.Revision() != many || len(g.reports) > 0 {
		t.Errorf("%d clients at revision %d, %v, want %d", n, g.Revision(), g.reports, many)
	}
	rdb.Del(ctx, sharedKeys...)
	g.refresh(t, true)
	fresh := newGateway(rdb)
	fresh.refresh(t, true)
	if diff := cmp.Diff(g.known(), fresh.known()); diff != "" || len(fresh.known()) != many {
		t.Errorf("%d clients after a loss (-want +got):\n%.500s", len(fresh.known()), diff)
	}
}

// TestGatewaysAgree: after random operations all gateways have the same clients and, if Redis has
// lost nothing, the last version of each.
func TestGatewaysAgree(t *testing.T) {
	t.Parallel()
	rdb := connect(t, startEmbedded(t))
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 7))
		rdb.FlushAll(t.Context())
		testAgreement(t, rdb, random, seed%2 == 1)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func testAgreement(t *testing.T, rdb redis.UniversalClient, random *rand.Rand, losses bool) {
	gateways := []*gateway{newGateway(rdb), newGateway(rdb), newGateway(rdb)}
	want := map[string]uint64{} // the revision of the last change
	earlier := save(t, rdb)
	for range 120 {
		g := gateways[random.IntN(len(gateways))]
		id := string(rune('a' + random.IntN(6)))
		var made clients.Change
		var err error
		switch random.IntN(9) {
		case 0, 1:
			made, err = g.Create(t.Context(), document(id), issue())
		case 2:
			d := document(id)
			d.Disabled = random.IntN(2) == 0
			made, err = g.Update(t.Context(), d, 0)
		case 3:
			made, err = g.AddSecret(t.Context(), id, issue(), noon.Add(time.Hour), 0)
		case 4:
			if made, err = g.Delete(t.Context(), id, 0); err == nil {
				delete(want, id)
			}
		case 5:
			g.refresh(t, true)
		case 6:
			earlier = save(t, rdb)
		case 7:
			if losses {
				lose(t, rdb, random, earlier)
			}
		default:
			g.refresh(t, false)
		}
		if made.After != nil {
			want[id] = made.After.Revision
		}
		for _, expected := range []error{nil, clients.ErrExists, clients.ErrNotFound, clients.ErrTooManySecrets, clients.ErrUnavailable} {
			if errors.Is(err, expected) {
				err = nil
			}
		}
		if err != nil {
			t.Fatalf("error = %v", err)
		}
	}
	for range 2 {
		for _, g := range gateways {
			g.refresh(t, true)
		}
	}
	fresh := newGateway(rdb)
	fresh.refresh(t, true)
	wantWhole(t, rdb)
	for _, g := range gateways {
		if diff := cmp.Diff(fresh.known(), g.known()); diff != "" {
			t.Errorf("a gateway differs from a new one (-want +got):\n%s", diff)
		}
	}
	if losses {
		return
	}
	got := map[string]uint64{}
	for id, c := range fresh.known() {
		got[id] = c.Revision
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
	for _, g := range gateways {
		if len(g.reports) > 0 {
			t.Errorf("reports although nothing was lost: %v", g.reports)
		}
	}
}

func lose(t *testing.T, rdb redis.UniversalClient, random *rand.Rand, earlier backup) {
	switch random.IntN(4) {
	case 0:
		rdb.FlushAll(t.Context())
	case 1:
		rdb.Del(t.Context(), "{sg}:c")
	case 2:
		rdb.Del(t.Context(), "{sg}:cs")
	default:
		earlier.restore(t, rdb)
	}
}

func TestRecord(t *testing.T) {
	c := clients.Client{
		ID: "a", Source: clients.SourceRegistry, Revision: 7, Generation: 3, CreatedAt: noon, UpdatedAt: noon.Add(time.Millisecond),
		Secrets: []clients.Secret{{ID: "s1", SHA256: clients.Digest("x"), CreatedAt: noon, ExpiresAt: noon.Add(time.Hour)}},
	}
	d := document("a")
	d.Disabled = true
	d.ApplyTo(&c)
	text, err := encodeRecord(&c)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"v":1,"rev":7,"gen":3,"op":"","id":"a","name":"Orders & more","scope":"a b","aud":["https://x?a=1&b=2"],` +
		`"ttl":60000,"rate":"5/s","introspect":"audience","disabled":true,"created":1780315200000,"updated":1780315200001,` +
		`"secrets":[{"id":"s1","sha256":"LXEWQrcmsEQBYnyp++wywchqTKTgNVRqMeiInEi04og=","created":1780315200000,"expires":1780318800000}]}`
	if !strings.Contains(text, `"sha256":"`) || strings.Split(text, `"sha256"`)[0] != strings.Split(want, `"sha256"`)[0] {
		t.Errorf("encodeRecord = %s, want %s", text, want)
	}
	got, err := decodeRecord("a", text)
	if diff := cmp.Diff(c, got); diff != "" || err != nil {
		t.Errorf("decodeRecord: %v (-want +got):\n%s", err, diff)
	}
	for reason, bad := range map[string]string{
		"another client":      strings.Replace(text, `"id":"a"`, `"id":"b"`, 1),
		"another version":     strings.Replace(text, `"v":1`, `"v":2`, 1),
		"more in a secret":    strings.Replace(text, `"id":"s1"`, `"id":"s1","x":1`, 1),
		"it twice":            text + text,
		"no revision":         strings.Replace(text, `"rev":7`, `"rev":0`, 1),
		"too great for Lua":   strings.Replace(text, `"rev":7`, `"rev":9007199254740993`, 1),
		"negative":            strings.Replace(text, `"rev":7`, `"rev":-1`, 1),
		"a bad scope":         strings.Replace(text, `"a b"`, `"a  b"`, 1),
		"a scope twice":       strings.Replace(text, `"a b"`, `"a a"`, 1),
		"a bad audience":      strings.Replace(text, `https://x`, `x`, 1),
		"a bad name":          strings.Replace(text, `Orders`, `\u0000`, 1),
		"a bad rate":          strings.Replace(text, `5/s`, `5/x`, 1),
		"a bad policy":        strings.Replace(text, `"audience"`, `"all"`, 1),
		"a negative lifetime": strings.Replace(text, `60000`, `-60000`, 1),
		"a short digest":      strings.Replace(text, `ACL`, ``, 1)[:len(text)-40] + "}]}",
		"a negative instant":  strings.Replace(text, `"created":1`, `"created":-1`, 1),
		"something behind":    text + "{}",
		"cut":                 text[:len(text)-1],
		"nothing":             "",
	} {
		if got, err := decodeRecord("a", bad); err == nil {
			t.Errorf("decodeRecord with %s = %+v, want an error", reason, got)
		}
	}
	none := clients.Client{ID: "a", Revision: 1, Secrets: []clients.Secret{{ID: "s1", SHA256: clients.Digest("")}}}
	text, _ = encodeRecord(&none)
	if _, err := decodeRecord("a", text); err == nil {
		t.Error("decodeRecord took the digest of nothing")
	}
	none.Secrets = slices.Repeat([]clients.Secret{{ID: "s1", SHA256: clients.Digest("x")}}, 2)
	text, _ = encodeRecord(&none)
	if _, err := decodeRecord("a", text); err == nil {
		t.Error("decodeRecord took two secrets of one name")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	c := clients.Client{ID: "a", Revision: 7, Secrets: []clients.Secret{issue().Secret()}}
	c.Secrets[0].ID = "s1"
	d := document("a")
	d.ApplyTo(&c)
	text, _ := encodeRecord(&c)
	for _, seed := range []string{text, strings.TrimSuffix(text, "}") + `,"x":{"}":null},"a":"<&>"}`, "{}", `{"v":1,"rev":1,"gen":0,"op":"","id":"a","created":0,"updated":0}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := decodeRecord("a", text)
		if err != nil {
			return
		}
		again, err := encodeRecord(&c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeRecord("a", again)
		if err != nil {
			t.Fatalf("decodeRecord(%s) of %s = %v", again, text, err)
		}
		if len(c.Audiences) == 0 {
			c.Audiences = nil
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Fatalf("%s reads differently the second time (-want +got):\n%s", text, diff)
		}
	})
}
