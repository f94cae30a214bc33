package redisstore

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

func encoded(t testing.TB, r tokens.Record) []byte {
	t.Helper()
	b, err := encodeRecord(r)
	if err != nil {
		t.Fatalf("encodeRecord = %v", err)
	}
	return b
}

func TestRecordVector(t *testing.T) {
	r := tokens.Record{Token: tokens.Token{
		ID: 7, Client: "ab", Scope: scope.Of("r", "w"), Audience: []string{"x", "yz"}, ExpiresAt: time.UnixMilli(300),
	}}
	r.Digest[0] = 0xaa
	want := "\x01\xaa" + strings.Repeat("\x00", 31) + "\xac\x02" + "\x02ab" + "\x03r w" + "\x01x" + "\x02yz"
	if got := encoded(t, r); string(got) != want {
		t.Errorf("encodeRecord = %q, want %q", got, want)
	}
	r.Token.Generation = 129
	want = "\x02\xaa" + strings.Repeat("\x00", 31) + "\xac\x02" + "\x81\x01" + "\x02ab" + "\x03r w" + "\x01x" + "\x02yz"
	if got := encoded(t, r); string(got) != want {
		t.Errorf("encodeRecord with a generation = %q, want %q", got, want)
	}
	if got, err := decodeRecord(7, want); err != nil || got.Token.Generation != 129 {
		t.Errorf("decodeRecord = generation %d, %v, want 129", got.Token.Generation, err)
	}
}

func TestRecordBounds(t *testing.T) {
	base := tokenstest.SampleRecord(1)
	change := func(f func(*tokens.Token)) tokens.Record {
		r := base
		f(&r.Token)
		return r
	}
	for name, r := range map[string]tokens.Record{
		"no client":        change(func(t *tokens.Token) { t.Client = "" }),
		"long client":      change(func(t *tokens.Token) { t.Client = strings.Repeat("c", maxClient+1) }),
		"long scope":       change(func(t *tokens.Token) { t.Scope = scope.List(strings.Repeat("s", maxScope+1)) }),
		"empty audience":   change(func(t *tokens.Token) { t.Audience = []string{""} }),
		"long audience":    change(func(t *tokens.Token) { t.Audience = []string{strings.Repeat("a", maxAudience+1)} }),
		"many audiences":   change(func(t *tokens.Token) { t.Audience = strings.Split(strings.Repeat("a ", maxAudiences)+"a", " ") }),
		"before the epoch": change(func(t *tokens.Token) { t.ExpiresAt = time.UnixMilli(-1) }),
	} {
		if b, err := encodeRecord(r); err == nil {
			t.Errorf("%s: encodeRecord = %d bytes, want an error", name, len(b))
		}
	}
	greatest := change(func(t *tokens.Token) {
		t.Client = strings.Repeat("c", maxClient)
		t.Scope = scope.List(strings.Repeat("s", maxScope))
		t.Audience = strings.Split(strings.Repeat(strings.Repeat("a", maxAudience)+" ", maxAudiences-1)+"a", " ")
	})
	got, err := decodeRecord(greatest.Token.ID, string(encoded(t, greatest)))
	if diff := cmp.Diff(greatest, got, cmp.Comparer(tokens.Digest.Equal)); err != nil || diff != "" {
		t.Errorf("decodeRecord of the greatest record = %v (-want +got):\n%s", err, diff)
	}
}

func TestDamagedRecords(t *testing.T) {
	good := encoded(t, tokenstest.SampleRecord(1))
	head := string(good[:33])
	for name, text := range map[string]string{
		"empty":                "",
		"version 0":            "\x00" + string(good[1:]),
		"version 3":            "\x03" + string(good[1:]),
		"generation 0":         "\x02" + head[1:] + "\x01" + "\x00" + "\x01c" + "\x00",
		"overlong generation":  "\x02" + head[1:] + "\x01" + "\x81\x00" + "\x01c" + "\x00",
		"no generation":        "\x02" + head[1:] + "\x01",
		"no expiry":            head,
		"overlong expiry":      head + "\x81\x80\x00" + "\x01c" + "\x00",
		"expiry past all time": head + string(binary.AppendUvarint(nil, 1<<63)) + "\x01c" + "\x00",
		"no client":            head + "\x01" + "\x00" + "\x00",
		"client cut":           head + "\x01" + "\x05abc",
		"no scope":             head + "\x01" + "\x01c",
		"two spaces in scope":  head + "\x01" + "\x01c" + "\x04a  b",
		"repeated scope":       head + "\x01" + "\x01c" + "\x03a a",
		"empty audience":       head + "\x01" + "\x01c" + "\x00" + "\x00",
		"length of a gigabyte": head + "\x01" + "\xff\xff\xff\xff\x04",
		"too many audiences":   head + "\x01" + "\x01c" + "\x00" + strings.Repeat("\x01a", maxAudiences+1),
	} {
		if r, err := decodeRecord(1, text); err == nil {
			t.Errorf("%s: decodeRecord = %v, want an error", name, r)
		}
	}
	minimal := encoded(t, tokens.Record{Token: tokens.Token{Client: "c", ExpiresAt: time.UnixMilli(1)}})
	for n := range len(minimal) {
		if r, err := decodeRecord(1, string(minimal[:n])); err == nil {
			t.Errorf("decodeRecord of the first %d of %d bytes = %v, want an error", n, len(minimal), r)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(encoded(f, tokenstest.SampleRecord(1)))
	f.Add(encoded(f, tokens.Record{Token: tokens.Token{Client: "c", ExpiresAt: time.UnixMilli(1)}}))
	revoked := tokenstest.SampleRecord(1)
	revoked.Token.Generation = 1 << 40
	f.Add(encoded(f, revoked))
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x01", 60)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(42, string(b))
		if err != nil {
			return
		}
		// One record has one encoding.
		if again, err := encodeRecord(r); err != nil || !bytes.Equal(again, b) {
			t.Errorf("decodeRecord(%q) is encoded as %q, %v", b, again, err)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	r := tokenstest.SampleRecord(1)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := encodeRecord(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	stored := string(encoded(b, r))
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeRecord(1, stored); err != nil {
				b.Fatal(err)
			}
		}
	})
}
