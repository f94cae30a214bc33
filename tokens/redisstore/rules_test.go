package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"snowgate/tokens"
	"snowgate/tokens/tokenstest/redistest"
)

func TestDecodeRules(t *testing.T) {
	const now = 1_700_000_000_000
	worker := tokens.WorkerRule(3, time.UnixMilli(now-2000), time.UnixMilli(now-1000))
	worker.End, worker.Created, worker.By, worker.Why = time.UnixMilli(now+5000), time.UnixMilli(now), "admin", `{"end":1,"x`
	field, value, err := encodeInterval(worker)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"end":1700000005000,"created":1700000000000,"kind":"worker",`; !strings.HasPrefix(value, want) {
		t.Errorf("encodeInterval = %s, want it to begin with %s, as the scripts expect", value, want)
	}
	set, err := decodeRules([]string{"1700000000000",
		"v", "57", "m", "3600000", "p", "17", "something", "new",
		"g:orders", "41:1700000005000",
		"g:ended", "40:1600000000000",
		field, value,
	})
	if err != nil || set.Revision != 57 || set.Longest != time.Hour || len(set.Rules) != 2 {
		t.Fatalf("decodeRules = %+v, %v, want revision 57, an hour and 2 rules", set, err)
	}
	if r := set.Rules[0]; r.Client != "orders" || r.Generation != 41 || !r.End.Equal(time.UnixMilli(now+5000)) || r.ID != "client-orders" {
		t.Errorf("the rule for a client is %+v", r)
	}
	if set.Rules[1] != worker {
		t.Errorf("the rule for a worker is %+v, want %+v", set.Rules[1], worker)
	}
}

// TestDamagedFields: each is named, and none hides the others.
func TestDamagedFields(t *testing.T) {
	const good = "g:good"
	for name, pair := range map[string][2]string{
		"revision of words":        {"v", "many"},
		"revision beyond Lua":      {"v", "9007199254740993"},
		"negative lifetime":        {"m", "-1"},
		"no end":                   {"g:bad", "7"},
		"no generation":            {"g:bad", ":1900000000000"},
		"generation 0":             {"g:bad", "0:1900000000000"},
		"no client":                {"g:", "7:1900000000000"},
		"leading zero":             {"g:bad", "07:1900000000000"},
		"no JSON":                  {"i:before-1", "x"},
		"no kind":                  {"i:before-1", `{"end":2,"until":1}`},
		"a client's kind":          {"i:before-1", `{"end":2,"kind":"client","until":1}`},
		"unknown kind, no until":   {"i:after-1", `{"end":2,"kind":"after"}`},
		"unknown kind, end behind": {"i:after-1", `{"kind":"after","end":2,"until":1}`},
		"unknown kind, ends early": {"i:after-1", `{"end":2,"kind":"after","until":3}`},
		"unknown kind, from late":  {"i:after-1", `{"end":9,"kind":"after","from":4,"until":3}`},
		"unknown kind, no worker":  {"i:after-1", `{"end":9,"kind":"after","until":3,"worker":-2}`},
		"another rule's id":        {"i:before-2", `{"end":2,"kind":"before","until":1}`},
		"end before what it names": {"i:before-5", `{"end":2,"kind":"before","until":5}`},
		"interval the wrong way":   {"i:worker-1-9-5", `{"end":20,"kind":"worker","worker":1,"from":9,"until":5}`},
	} {
		set, err := decodeRules([]string{"1700000000000", pair[0], pair[1], good, "7:1900000000000"})
		if err == nil || !strings.Contains(err.Error(), `"`+pair[0]+`"`) {
			t.Errorf("%s: decodeRules = %v, want an error that names the field", name, err)
		}
		if len(set.Rules) != 1 || set.Rules[0].Client != "good" {
			t.Errorf("%s: decodeRules = %+v, want the other rule", name, set.Rules)
		}
	}
	for _, reply := range [][]string{{}, {"x"}, {"1", "v"}, {"-1"}} {
		if set, err := decodeRules(reply); err == nil {
			t.Errorf("decodeRules(%q) = %+v, want an error", reply, set)
		}
	}
}

func FuzzDecodeRule(f *testing.F) {
	f.Add("g:orders", "41:1700000005000")
	f.Add("i:before-1", `{"end":2,"created":3,"kind":"before","until":1,"by":"a","why":"b"}`)
	f.Add("i:worker-1-5-9", `{"end":20,"kind":"worker","worker":1,"from":5,"until":9}`)
	f.Add("i:scope-x", `{"end":20,"created":3,"kind":"scope","scope":"x","worker":0,"from":5,"until":9}`)
	f.Add("v", "9007199254740992")
	f.Add("i:before--1", `{"end":9223372036854775807,"kind":"before","until":-1}`)
	f.Fuzz(func(t *testing.T, field, value string) {
		set, err := decodeRules([]string{"0", field, value})
		if err != nil && !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("decodeRules(%q, %q) = %v", field, value, err)
		}
		for _, r := range set.Rules {
			if err := r.Check(time.UnixMilli(maxExact)); err != nil && r.Known() {
				t.Errorf("decodeRules(%q, %q) = %+v: %v", field, value, r, err)
			}
		}
	})
}

func TestParsePush(t *testing.T) {
	for message, kind := range map[string]string{
		"token 0Wq5o8tAyaM 1700000000000":     PushToken,
		"rules 12 1700000000000":              PushRules,
		"rules 0 0":                           PushRules,
		"client orders.x 9 17":                PushClient,
		"keys 9007199254740992 1700000000000": PushKeys,
	} {
		if p, ok := parsePush(message); !ok || p.kind != kind || p.sent.UnixMilli() < 0 {
			t.Errorf("parsePush(%q) = %+v, %t, want kind %q", message, p, ok, kind)
		}
	}
	if p, _ := parsePush("token 0Wq5o8tAyaM 5"); p.id.String() != "0Wq5o8tAyaM" || !p.sent.Equal(time.UnixMilli(5)) {
		t.Errorf("parsePush = %+v", p)
	}
	for _, message := range []string{
		"", " ", "token", "token 0Wq5o8tAyaM", "token 0Wq5o8tAyaM ", "token 0Wq5o8tAya 5", "token 0Wq5o8tAyaM 5 6", "token  0Wq5o8tAyaM 5",
		"Token 0Wq5o8tAyaM 5", "token zzzzzzzzzzz 5", "token 0Wq5o8tAyaM -5", "token 0Wq5o8tAyaM 1e3", "token 0Wq5o8tAyaM 9007199254740993",
		"rules", "rules 1", "rules x 5", "rules 01 5", "rules 1 5\n", "rules 1 2 3", "client 9 17", "client  9 17", "keys -1 2",
		"rules 18446744073709551616 1", "flush 1 2", "client " + strings.Repeat("x", 5000) + " 1 2", "\x00\xff 1 2",
	} {
		if p, ok := parsePush(message); ok {
			t.Errorf("parsePush(%.80q) = %+v, want it refused", message, p)
		}
	}
}

func FuzzParsePush(f *testing.F) {
	f.Add("token 0Wq5o8tAyaM 1700000000000")
	f.Add("rules 12 1700000000000")
	f.Add("client orders 12 1700000000000")
	f.Add("keys 12")
	f.Fuzz(func(t *testing.T, message string) {
		p, ok := parsePush(message)
		if !ok {
			return
		}
		if !strings.HasPrefix(message, p.kind+" ") || p.sent.UnixMilli() < 0 {
			t.Errorf("parsePush(%q) = %+v", message, p)
		}
		if p.kind == PushToken && !strings.HasPrefix(message, "token "+p.id.String()+" ") {
			t.Errorf("parsePush(%q) has the id %v", message, p.id)
		}
	})
}

// TestErrorsOfRules: what is wrong with a rule is not the store's failure.
func TestErrorsOfRules(t *testing.T) {
	store, err := Open(Options{URL: "unix:///nonexistent/redis.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, _, err := store.AddRule(t.Context(), tokens.Rule{}); !errors.Is(err, tokens.ErrRule) || errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("AddRule of nothing = %v, want ErrRule", err)
	}
	for name, err := range map[string]error{
		"AddRule":        second(store.AddRule(t.Context(), tokens.ClientRule("x"))),
		"LoadRules":      func() error { _, err := store.LoadRules(t.Context()); return err }(),
		"RestoreRules":   store.RestoreRules(t.Context(), tokens.RuleSet{}),
		"RecordLifetime": store.RecordLifetime(t.Context(), time.Hour),
		"RemoveKeys":     store.RemoveKeys(t.Context(), []int64{1}),
	} {
		if !errors.Is(err, tokens.ErrUnavailable) || Kind(err) != KindRefused {
			t.Errorf("%s without a server = %v, want it unavailable: refused", name, err)
		}
	}
}

func second(_ tokens.Rule, _ uint64, err error) error { return err }

// TestFullOldServer: Redis 6 knows no flags, and lets a script go on that has
// begun with a write that needs no memory. Redis 7 does so for scripts without.
func TestFullOldServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	store, err := Open(Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.scripts.AssumeOld()
	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	if err := store.client.HSet(t.Context(), "x", "y", "z").Err(); Kind(err) != KindOOM {
		t.Fatalf("HSET = %v, want the server to be full", err)
	}
	rule, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders"))
	if err != nil {
		t.Fatalf("AddRule = %v", err)
	}
	for name, err := range map[string]error{
		"a rule before":  second(store.AddRule(t.Context(), tokens.BeforeRule(time.Now().Add(-time.Second)))),
		"RestoreRules":   store.RestoreRules(t.Context(), tokens.RuleSet{Revision: 9, Longest: time.Hour, Rules: []tokens.Rule{rule}}),
		"AddKeys":        store.AddKeys(t.Context(), []tokens.TagKey{{Start: 1, Key: tokens.NewKey()}}),
		"RecordLifetime": store.RecordLifetime(t.Context(), 2*time.Hour),
		"Delete":         store.Delete(t.Context(), 1),
	} {
		if err != nil {
			t.Errorf("%s = %v", name, err)
		}
	}
	if set, err := store.LoadRules(t.Context()); err != nil || len(set.Rules) != 2 || set.Longest != 2*time.Hour {
		t.Errorf("LoadRules = %+v, %v, want two rules and two hours", set, err)
	}
}

// TestOldReplica: a script that only reads would run on a replica without
// flags, too.
func TestOldReplica(t *testing.T) {
	t.Parallel()
	replica := redistest.StartReplica(t, redistest.Start(t))
	store, err := Open(Options{URL: replica.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.scripts.AssumeOld()
	if _, err := store.LoadRules(t.Context()); Kind(err) != KindReadOnly {
		t.Errorf("LoadRules from a replica = %v, want it refused", err)
	}
	if v, err := store.version(t.Context()); Kind(err) != KindReadOnly {
		t.Errorf("version of a replica = %v, %v, want it refused", v, err)
	}
}
