package tokens

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"

	"snowgate/idgen"
	"snowgate/internal/base62"
)

var testKey = Key{0: 1, 15: 0xff, 31: 7}

// bigBase62 is the specification of base62: big integers, slow and obvious.
func bigBase62(number []byte, width int) string {
	n, base, digit := new(big.Int).SetBytes(number), big.NewInt(62), new(big.Int)
	text := make([]byte, width)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		text[i] = base62.Digits[digit.Int64()]
	}
	return string(text)
}

// The largest valid secret (2^256 - 1) and tag (2^64 - 1).
var (
	maxSecretText = bigBase62(bytes.Repeat([]byte{0xff}, 32), secretLength)
	maxTagText    = bigBase62(bytes.Repeat([]byte{0xff}, 8), tagLength)
)

func TestTagIsHMAC(t *testing.T) {
	for range 200 {
		var head [tagOffset]byte
		key := NewKey()
		rand.Read(head[:])
		mac := hmac.New(sha256.New, key[:])
		mac.Write(head[:])
		want := bigBase62(mac.Sum(nil)[:8], tagLength)
		if got := tagText(&key, &head); string(got[:]) != want {
			t.Fatalf("tagText = %s, want %s", got, want)
		}
	}
}

// TestTokenVector pins the format: a change of it invalidates every issued token.
func TestTokenVector(t *testing.T) {
	const head = "sgt_0DXbPqT6mW4_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg"
	key, err := ParseKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		t.Fatal(err)
	}
	// printf %s "$head" | openssl dgst -sha256 -mac HMAC -macopt hexkey:000102…1f
	// gives a0e3fe44245f15f8…, which is DoPqUM2jum0 in base62.
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(head))
	text := head + bigBase62(mac.Sum(nil)[:8], tagLength)
	if want := head + "DoPqUM2jum0"; text != want {
		t.Errorf("the token is %s, want %s", text, want)
	}
	bearer, err := ParseBearer(text)
	if err != nil || !bearer.signedBy(&key) {
		t.Errorf("ParseBearer(vector) = %v, %v, signed: %t; want it signed", bearer, err, bearer.signedBy(&key))
	}
	if want := sha256.Sum256([]byte("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg")); bearer.Digest() != want {
		t.Errorf("Digest is not SHA-256 of the 43 characters of the secret")
	}
}

func TestMint(t *testing.T) {
	for _, id := range []idgen.ID{0, 1, 1<<63 - 1, 123456789012345678} {
		minted := mint(id, &testKey)
		text := minted.Reveal()
		if len(text) != Length || !strings.HasPrefix(text, Prefix) {
			t.Errorf("mint(%d) = %q", id, text)
		}
		parsed, err := ParseBearer(text)
		if err != nil || parsed != minted || parsed.ID() != id {
			t.Errorf("ParseBearer(%q) = %v, %v, want the token that was minted", text, parsed, err)
		}
		if !parsed.signedBy(&testKey) {
			t.Errorf("the token of id %d does not verify", id)
		}
		if other := mint(id, &testKey); other.Reveal() == text {
			t.Errorf("two tokens under id %d have the same secret", id)
		}
	}
}

func TestParseBearerRefuses(t *testing.T) {
	good := mint(1<<40, &testKey).Reveal()
	replace := func(i int, with string) string { return good[:i] + with + good[i+len(with):] }
	tests := []struct{ name, text string }{
		{"nothing", ""},
		{"too short", good[:Length-1]},
		{"too long", good + "0"},
		{"an id alone", good[idOffset : secretOffset-1]},
		{"another prefix", replace(0, "sgs_")},
		{"upper case prefix", replace(0, "SGT_")},
		{"no separator", replace(secretOffset-1, "0")},
		{"separator moved", replace(secretOffset-2, "_0")},
		{"id of 2^63", replace(idOffset, "AzL8n0Y58m8")},
		{"greatest id text", replace(idOffset, "zzzzzzzzzzz")},
		{"secret of 2^256", replace(secretOffset, bigBase62(append([]byte{1}, make([]byte, 32)...), secretLength))},
		{"greatest secret text", replace(secretOffset, strings.Repeat("z", secretLength))},
		{"tag of 2^64", replace(tagOffset, bigBase62(append([]byte{1}, make([]byte, 8)...), tagLength))},
		{"greatest tag text", replace(tagOffset, strings.Repeat("z", tagLength))},
		{"space in front", " " + good[:Length-1]},
		{"newline at the end", good[:Length-1] + "\n"},
		{"two bytes in one character", replace(30, "é")},
		{"quotes", `"` + good[1:Length-1] + `"`},
	}
	for _, test := range tests {
		if b, err := ParseBearer(test.text); err != error(ErrMalformed) {
			t.Errorf("%s: ParseBearer(%q) = %v, %v, want ErrMalformed", test.name, test.text, b, err)
		}
	}
	// Replace each byte by every other one: the text must be malformed or forged.
	for i := range Length {
		for c := range 256 {
			text := good[:i] + string([]byte{byte(c)}) + good[i+1:]
			if text == good {
				continue
			}
			if b, err := ParseBearer(text); err == nil && b.signedBy(&testKey) {
				t.Errorf("%q is accepted, byte %d was changed to %q", text, i, byte(c))
			}
		}
	}
}

func TestLimitsOfSecretAndTag(t *testing.T) {
	good := mint(5, &testKey).Reveal()
	for _, text := range []string{
		good[:secretOffset] + maxSecretText + good[tagOffset:],
		good[:tagOffset] + maxTagText,
		good[:secretOffset] + strings.Repeat("0", secretLength+tagLength),
	} {
		if _, err := ParseBearer(text); err != nil {
			t.Errorf("ParseBearer(%q) = %v, want it parsed", text, err)
		}
	}
}

func TestNothingPrintsSecrets(t *testing.T) {
	bearer := mint(1<<50, &testKey)
	record := Record{Digest: bearer.Digest()}
	values := []any{
		bearer, &bearer, []Bearer{bearer}, map[string]Bearer{"a": bearer}, struct{ B Bearer }{bearer}, Bearer{},
		bearer.Digest(), record, &record, testKey, &testKey, TagKey{Key: testKey}, []TagKey{{Key: testKey}},
		FixedKeyring(testKey).snapshot.Load().keys,
	}
	digest := bearer.Digest()
	hidden := []string{
		bearer.text[secretOffset:], bearer.text[secretOffset:tagOffset], bearer.text[tagOffset:],
		fmt.Sprintf("%x", [32]byte(digest)), fmt.Sprint([32]byte(digest)), base64.StdEncoding.EncodeToString(digest[:]),
		fmt.Sprintf("%x", [32]byte(testKey)), fmt.Sprint([32]byte(testKey)), testKey.Reveal(),
		strings.Trim(fmt.Sprint([32]byte(testKey)), "[]"), strings.Trim(fmt.Sprint([32]byte(digest)), "[]"),
		strings.ReplaceAll(strings.Trim(fmt.Sprint([32]byte(testKey)), "[]"), " ", ","),
		strings.ReplaceAll(strings.Trim(fmt.Sprint([32]byte(digest)), "[]"), " ", ","),
	}
	for _, value := range values {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10.3s"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		fmt.Fprintln(&out, value, errors.Join(fmt.Errorf("%v", value)))
		text, err := json.Marshal(value)
		if err != nil {
			t.Errorf("json.Marshal(%T) = %v", value, err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "value", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "value", value)
		for _, secret := range hidden {
			if strings.Contains(out.String(), secret) {
				t.Errorf("printing a %T shows a secret:\n%s", value, out.String())
			}
		}
	}
	if got, want := bearer.String(), "sgt_"+bearer.ID().String()+"_[redacted]"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestParseKey(t *testing.T) {
	key := NewKey()
	got, err := ParseKey(key.Reveal())
	if err != nil || !got.Equal(key) {
		t.Errorf("ParseKey(Reveal()) = %v, want the key", err)
	}
	good := key.Reveal()
	for name, text := range map[string]string{
		"empty":            "",
		"short":            base64.StdEncoding.EncodeToString(key[:31]),
		"long":             base64.StdEncoding.EncodeToString(append(key[:], 1)),
		"no padding":       strings.TrimRight(good, "="),
		"a line break":     good[:10] + "\n" + good[11:],
		"a final newline":  good + "\n",
		"URL alphabet":     strings.Repeat("-_", 21) + "-=",
		"trailing bits":    strings.Repeat("A", 42) + "B=",
		"hexadecimal":      fmt.Sprintf("%x", [32]byte(key)),
		"not of this word": strings.Repeat("é", 22),
	} {
		if got, err := ParseKey(text); !errors.Is(err, ErrKey) {
			t.Errorf("%s: ParseKey = %v, %v, want ErrKey", name, got, err)
		} else if len(text) > 4 && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error repeats the key", name)
		}
	}
}

func TestJudgingATokenDoesNotAllocate(t *testing.T) {
	ring := FixedKeyring(testKey)
	good := mint(1<<45, &testKey).Reveal()
	forged := good[:Length-1] + string(base62.Digits[(strings.IndexByte(base62.Digits, good[Length-1])+1)%62])
	tests := []struct {
		name, text string
		want       error
	}{
		{"good", good, nil},
		{"forged", forged, ErrForged},
		{"malformed", good[:Length-1] + "!", ErrMalformed},
		{"short", "sgt_", ErrMalformed},
	}
	for _, test := range tests {
		allocs := testing.AllocsPerRun(200, func() {
			b, err := ParseBearer(test.text)
			if err == nil {
				err = ring.Verify(t.Context(), b, testEpoch)
				_ = b.Digest()
			}
			if err != test.want {
				t.Fatalf("%s: %v, want %v", test.name, err, test.want)
			}
		})
		if allocs != 0 {
			t.Errorf("judging a token that is %s allocates %v times, want 0", test.name, allocs)
		}
	}
}

func FuzzParseBearer(f *testing.F) {
	f.Add(mint(1<<40, &testKey).Reveal())
	f.Add("sgt_AzL8n0Y58m7_" + maxSecretText + maxTagText)
	f.Add("sgt_00000000000_" + strings.Repeat("0", secretLength+tagLength))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBearer(text)
		if err != nil {
			if err != error(ErrMalformed) || b != (Bearer{}) {
				t.Errorf("ParseBearer(%q) = %v, %v, want nothing and ErrMalformed", text, b, err)
			}
			return
		}
		if b.Reveal() != text || len(text) != Length || b.ID().String() != text[idOffset:secretOffset-1] {
			t.Errorf("ParseBearer(%q) = id %v of %q", text, b.ID(), b.Reveal())
		}
		if b.Digest() != sha256.Sum256([]byte(text[secretOffset:tagOffset])) {
			t.Errorf("Digest of %q is wrong", text)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add(testKey.Reveal())
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := ParseKey(text); err == nil && key.Reveal() != text {
			t.Errorf("ParseKey(%q) has another spelling: %q", text, key.Reveal())
		}
	})
}
