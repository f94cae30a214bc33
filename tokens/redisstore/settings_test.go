package redisstore

import (
	"slices"
	"strings"
	"testing"
)

func TestParseInfo(t *testing.T) {
	const info = "# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nused_memory:950\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n" +
		"# Persistence\r\naof_enabled:0\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:err\r\n# Replication\r\nconnected_slaves:1\r\n"
	got := parseInfo(info)
	if want := (Settings{"7.0.15", "allkeys-lru", 950, 1000, false, true, 1}); got != want {
		t.Errorf("parseInfo = %+v, want %+v", got, want)
	}
	var texts []string
	for _, remark := range got.Remarks(2) {
		texts = append(texts, remark.Text)
		if !slices.Contains(RemarkNames, remark.Name) {
			t.Errorf("the remark %+v has no known name", remark)
		}
	}
	remarks := strings.Join(texts, "\n")
	for _, want := range []string{"allkeys-lru", "append-only", "disk", "950 of 1000", "1 replicas connected, fewer than the 2"} {
		if !strings.Contains(remarks, want) {
			t.Errorf("the remarks do not contain %q:\n%s", want, remarks)
		}
	}
	good := Settings{"7.0.15", "noeviction", 950, 0, true, false, 2}
	if remarks := good.Remarks(2); len(remarks) > 0 {
		t.Errorf("remarks about good settings: %q", remarks)
	}
	if remarks := (Settings{}).Remarks(2); len(remarks) > 0 {
		t.Errorf("remarks about a server that reports nothing: %q", remarks)
	}
	old := good
	old.Version = "6.0.16"
	if remarks := old.Remarks(0); len(remarks) != 1 || !strings.Contains(remarks[0].Text, "older than 6.2") {
		t.Errorf("remarks about 6.0 = %q", remarks)
	}
}

func TestWorse(t *testing.T) {
	one := Settings{"7.2.0", "noeviction", 100, 1000, true, false, 2}
	other := Settings{"7.0.15", "allkeys-lru", 90, 100, false, true, 1}
	want := Settings{"7.0.15", "allkeys-lru", 90, 100, false, true, 1}
	if got := one.worse(other); got != want {
		t.Errorf("worse = %+v, want %+v", got, want)
	}
	if got := other.worse(one); got != want {
		t.Errorf("the other way round: %+v, want %+v", got, want)
	}
	if got := (Settings{}).worse(one); got != one {
		t.Errorf("with a server that reports nothing: %+v, want %+v", got, one)
	}
}

func FuzzParseInfo(f *testing.F) {
	f.Add("redis_version:7.0.15\r\nused_memory:1\r\nmaxmemory:99999999999999999999\r\nconnected_slaves:-1\r\n")
	f.Fuzz(func(t *testing.T, info string) {
		s := parseInfo(info)
		if s.Memory < 0 || s.MaxMemory < 0 || s.Replicas < 0 {
			t.Errorf("parseInfo(%q) = %+v", info, s)
		}
		_ = s.worse(parseInfo("redis_version:7.0.15")).Remarks(1)
	})
}
