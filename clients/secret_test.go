package clients

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/big"
	"strings"
	"testing"

	"snowgate/internal/base62"
)

// vector is a secret that was computed by hand, see TestFormatSecret.
func vector() [32]byte {
	var random [32]byte
	for i := range random {
		random[i] = byte(i)
	}
	return random
}

// slowBase62 is the textbook conversion.
func slowBase62(n *big.Int, width int) string {
	text := ""
	for n, digit := new(big.Int).Set(n), new(big.Int); len(text) < width; {
		n.DivMod(n, big.NewInt(62), digit)
		text = string("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[digit.Int64()]) + text
	}
	return text
}

func TestFormatSecret(t *testing.T) {
	for _, random := range [][32]byte{{}, vector(), [32]byte([]byte(strings.Repeat("\xff", 32)))} {
		checked := "sgs_" + slowBase62(new(big.Int).SetBytes(random[:]), 43)
		crc := new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(checked))))
		want := checked + slowBase62(crc, 6)
		got := formatSecret(random).Reveal()
		if got != want || len(got) != SecretLen || SecretLen != 53 {
			t.Errorf("formatSecret(%x) = %s, want %s", random, got, want)
		}
		if err := CheckSecret(got); err != nil {
			t.Errorf("CheckSecret(%s) = %v", got, err)
		}
	}
}

func TestNewSecret(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		secret, digest := NewSecret()
		if err := CheckSecret(secret.Reveal()); err != nil {
			t.Fatalf("CheckSecret of a new secret = %v", err)
		}
		if digest != sha256.Sum256([]byte(secret.Reveal())) || digest != Digest(secret.Reveal()) {
			t.Fatal("the digest is not the SHA-256 of the whole text")
		}
		if seen[secret.Reveal()] {
			t.Fatal("two secrets are equal")
		}
		seen[secret.Reveal()] = true
	}
}

func TestCheckSecret(t *testing.T) {
	good := formatSecret(vector()).Reveal()
	tooLarge := "sgs_" + strings.Repeat("z", 43)
	tooLarge += slowBase62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(tooLarge)))), 6)
	tests := []struct{ text, reason string }{
		{"", "empty"},
		{"sgs_", "prefix only"},
		{good[4:], "without prefix"},
		{"SGS_" + good[4:], "prefix in capitals"},
		{"sgt_" + good[4:], "prefix of a token"},
		{good[:len(good)-1], "too short"},
		{good + "0", "too long"},
		{good + "\n", "a line break at the end"},
		{" " + good, "a space before it"},
		{good[:20] + "-" + good[21:], "outside the base62.Digits"},
		{good[:20] + "é" + good[22:], "not ASCII"},
		{good[:4] + "1" + good[5:], "one character changed"},
		{good[:20] + good[21:22] + good[20:21] + good[22:], "two characters swapped"},
		{good[:len(good)-6] + "000000", "other check digits"},
		{tooLarge, "2^256 or more"},
	}
	for _, tt := range tests {
		err := CheckSecret(tt.text)
		if !errors.Is(err, ErrSecretFormat) {
			t.Errorf("CheckSecret(%q) = %v, want ErrSecretFormat: %s", tt.text, err, tt.reason)
		} else if len(tt.text) > 20 && strings.Contains(err.Error(), tt.text[8:20]) {
			t.Errorf("CheckSecret repeats the text: %v", err)
		}
	}
	if err := CheckSecret(tooLarge); !strings.Contains(err.Error(), "256 bits") {
		t.Errorf("CheckSecret(%s) = %v, want a complaint about the size", tooLarge, err)
	}
}

// Every single changed character must be found: that is what the check is for.
func TestCheckSecretFindsEveryTypo(t *testing.T) {
	good := formatSecret(vector()).Reveal()
	for i := range good {
		for _, c := range base62.Digits {
			typo := good[:i] + string(c) + good[i+1:]
			if typo != good && CheckSecret(typo) == nil {
				t.Fatalf("CheckSecret(%s) = nil, character %d is wrong", typo, i)
			}
		}
	}
}

func TestPlaintextPrintsNothing(t *testing.T) {
	secret, _ := NewSecret()
	text := secret.Reveal()
	encoded, err := json.Marshal(map[string]any{"value": secret, "pointer": &secret})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("made", "secret", secret)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("made", "secret", &secret)
	outputs := []string{
		string(encoded), log.String(), secret.String(),
		fmt.Sprint(secret, &secret), fmt.Sprintf("%v %+v %#v %s %q %x %X %d %t %10s", secret, secret, secret, secret, secret, secret, secret, secret, secret, secret),
		fmt.Sprintf("%v %+v %#v", struct{ S Plaintext }{secret}, []Plaintext{secret}, map[string]Plaintext{"k": secret}),
		fmt.Errorf("wrapped: %w", fmt.Errorf("%v", secret)).Error(),
	}
	hexed := fmt.Sprintf("%x", text)
	for _, out := range outputs {
		if strings.Contains(out, text[:10]) || strings.Contains(out, hexed[:16]) || !strings.Contains(out, "[redacted]") {
			t.Errorf("printed as %s", out)
		}
	}
}

func FuzzCheckSecret(f *testing.F) {
	good := formatSecret(vector()).Reveal()
	for _, seed := range []string{good, "", "sgs_", good[:52], good + "x", strings.ToUpper(good)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if CheckSecret(text) != nil {
			return
		}
		// A text that passes stands for exactly one number, and that number for exactly one text.
		n := new(big.Int)
		for _, c := range text[4:47] {
			n.Mul(n, big.NewInt(62)).Add(n, big.NewInt(int64(strings.IndexRune(base62.Digits, c))))
		}
		if n.BitLen() > 256 {
			t.Fatalf("CheckSecret(%q) = nil, %d bits", text, n.BitLen())
		}
		var random [32]byte
		if again := formatSecret([32]byte(n.FillBytes(random[:]))).Reveal(); again != text {
			t.Fatalf("CheckSecret(%q) = nil, but the number is written %q", text, again)
		}
	})
}

func BenchmarkNewSecret(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewSecret()
	}
}
