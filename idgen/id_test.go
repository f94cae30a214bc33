package idgen

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const largest = ID(math.MaxInt64)

func TestForms(t *testing.T) {
	tests := []struct {
		id                          ID
		base62, decimal, base32, he string
	}{
		{0, "00000000000", "0", "0000000000000", "0000000000000000"},
		{1, "00000000001", "1", "0000000000001", "0000000000000001"},
		{61, "0000000000z", "61", "000000000001X", "000000000000003d"},
		{62, "00000000010", "62", "000000000001Y", "000000000000003e"},
		{62*62 - 1, "000000000zz", "3843", "00000000003R3", "0000000000000f03"},
		// one digit further than each group that the encoder splits off
		{62 * 62 * 62 * 62, "00000010000", "14776336", "00000000E2Y0G", "0000000000e17810"},
		{218340105584896, "00100000000", "218340105584896", "00066JH26Y080", "0000c694446f0100"},
		{largest, "AzL8n0Y58m7", "9223372036854775807", "7ZZZZZZZZZZZZ", "7fffffffffffffff"},
	}
	for _, test := range tests {
		id := test.id
		for _, form := range []struct {
			name  string
			got   string
			want  string
			parse func(string) (ID, error)
		}{
			{"base62", id.String(), test.base62, Parse},
			{"decimal", id.Decimal(), test.decimal, ParseDecimal},
			{"base32", id.Base32(), test.base32, ParseBase32},
			{"hex", id.Hex(), test.he, ParseHex},
		} {
			if form.got != form.want {
				t.Errorf("%s of %d = %q, want %q", form.name, int64(id), form.got, form.want)
			}
			if back, err := form.parse(form.got); back != id || err != nil {
				t.Errorf("parse %s %q = %d, %v, want %d", form.name, form.got, int64(back), err, int64(id))
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		parse func(string) (ID, error)
		text  string
		want  error
	}{
		{Parse, "", ErrLength},
		{Parse, "0000000000", ErrLength},
		{Parse, "000000000000", ErrLength},
		{Parse, "0000000000-", ErrAlphabet},
		{Parse, " 0000000000", ErrAlphabet},
		{Parse, "0000000000é", ErrLength}, // two bytes
		{Parse, "000000000\xff0", ErrAlphabet},
		{Parse, "AzL8n0Y58m8", ErrRange}, // 2^63
		{Parse, "LygHa16AHYF", ErrRange}, // 2^64 - 1
		{Parse, "LygHa16AHYG", ErrRange}, // 2^64, 0 if it wrapped
		{Parse, "zzzzzzzzzzz", ErrRange}, // wraps twice
		{ParseDecimal, "", ErrLength},
		{ParseDecimal, "+1", ErrAlphabet},
		{ParseDecimal, "-1", ErrAlphabet},
		{ParseDecimal, "01", ErrAlphabet}, // one text for one id
		{ParseDecimal, "1_0", ErrAlphabet},
		{ParseDecimal, "9223372036854775808", ErrRange},
		{ParseDecimal, "9999999999999999999", ErrRange},
		{ParseDecimal, "18446744073709551616", ErrLength},
		{ParseBase32, "000000000000", ErrLength},
		{ParseBase32, "000000000000U", ErrAlphabet}, // Crockford leaves U out
		{ParseBase32, "0000000-00000", ErrAlphabet},
		{ParseBase32, "8000000000000", ErrRange}, // 2^63
		{ParseBase32, "G000000000000", ErrRange}, // 2^64, 0 if it wrapped
		{ParseBase32, "ZZZZZZZZZZZZZ", ErrRange},
		{ParseHex, "0", ErrLength},
		{ParseHex, "000000000000000G", ErrAlphabet},
		{ParseHex, "000000000000000A", ErrAlphabet}, // lower case only
		{ParseHex, "8000000000000000", ErrRange},
	}
	for _, test := range tests {
		got, err := test.parse(test.text)
		if !errors.Is(err, test.want) {
			t.Errorf("parse %q = %d, %v, want error %v", test.text, int64(got), err, test.want)
		}
		var pe *ParseError
		if !errors.As(err, &pe) {
			t.Errorf("parse %q: error is a %T, want *ParseError", test.text, err)
		}
	}
}

func TestParseErrorIsShort(t *testing.T) {
	_, err := Parse(strings.Repeat("x", 1<<20))
	if len(err.Error()) > 200 {
		t.Errorf("error text has %d bytes, want a short one", len(err.Error()))
	}
}

func TestBase32ReadsWhatPeopleType(t *testing.T) {
	want, _ := ParseBase32("00000011001AB")
	if got, err := ParseBase32("ooooOOilOOlab"); got != want || err != nil {
		t.Errorf("ParseBase32 with o, i, l and lower case = %d, %v, want %d", got, err, want)
	}
}

func TestTextSortsAsIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	ids := make([]ID, 2000)
	for i := range ids {
		ids[i] = ID(rng.Int64() >> rng.IntN(63))
	}
	for name, form := range map[string]func(ID) string{"base62": ID.String, "base32": ID.Base32, "hex": ID.Hex} {
		byText := slices.Clone(ids)
		slices.SortFunc(byText, func(a, b ID) int { return cmp.Compare(form(a), form(b)) })
		if !slices.IsSorted(byText) {
			t.Errorf("%s does not sort as the ids do", name)
		}
	}
}

func TestJSONIsAString(t *testing.T) {
	type doc struct {
		ID   ID        `json:"id"`
		Seen map[ID]ID `json:"seen"`
	}
	in := doc{largest, map[ID]ID{1: 2}}
	text, err := json.Marshal(in)
	want := `{"id":"AzL8n0Y58m7","seen":{"00000000001":"00000000002"}}`
	if string(text) != want || err != nil {
		t.Fatalf("Marshal = %s, %v, want %s", text, err, want)
	}
	var out doc
	if err := json.Unmarshal(text, &out); err != nil || out.ID != in.ID || out.Seen[1] != 2 {
		t.Errorf("Unmarshal(%s) = %+v, %v, want %+v", text, out, err, in)
	}
	if err := json.Unmarshal([]byte(`{"id":12}`), &out); err == nil {
		t.Error("Unmarshal of a JSON number succeeded, want an error: it may have lost digits already")
	}
	if _, err := json.Marshal(ID(-1)); !errors.Is(err, ErrRange) {
		t.Errorf("Marshal(ID(-1)): %v, want ErrRange", err)
	}
}

func TestScanAndValue(t *testing.T) {
	for _, src := range []any{int64(largest), largest.String(), []byte(largest.String())} {
		var id ID
		if err := id.Scan(src); id != largest || err != nil {
			t.Errorf("Scan(%v) = %d, %v, want %d", src, id, err, largest)
		}
	}
	for _, src := range []any{nil, int64(-1), 3.0, "12", []byte(nil)} {
		if err := new(ID).Scan(src); err == nil {
			t.Errorf("Scan(%v) succeeded, want an error", src)
		}
	}
	var null sql.Null[ID]
	if err := null.Scan(nil); err != nil || null.Valid {
		t.Errorf("sql.Null[ID].Scan(nil) = %+v, %v, want it not valid", null, err)
	}
	if v, err := largest.Value(); v != int64(largest) || err != nil {
		t.Errorf("Value() = %v, %v, want the int64", v, err)
	}
}

func TestNegativeIDsDoNotPanic(t *testing.T) {
	for _, form := range []func(ID) string{ID.String, ID.Base32, ID.Hex} {
		if got := form(math.MinInt64); got != "ID(-9223372036854775808)" {
			t.Errorf("form of the smallest int64 = %q", got)
		}
	}
}

func TestEncodeDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 64)
	text := largest.String()
	n := testing.AllocsPerRun(100, func() {
		buf = largest.Append(buf[:0])
		if _, err := Parse(text); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("Append and Parse allocate %v times, want 0", n)
	}
}

func fuzzForm(f *testing.F, form func(ID) string, parse func(string) (ID, error), seeds ...string) {
	for _, id := range []ID{0, 1, 1 << 22, 6979004485312020512, largest} {
		f.Add(form(id))
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := parse(text)
		if err != nil {
			return
		}
		if id < 0 {
			t.Fatalf("parse %q = %d, want none below 0", text, int64(id))
		}
		canonical := form(id)
		if again, err := parse(canonical); again != id || err != nil {
			t.Errorf("parse %q = %d, %v, want %d", canonical, int64(again), err, int64(id))
		}
		if !strings.EqualFold(text, canonical) && !strings.ContainsAny(text, "oOiIlL") {
			t.Errorf("parse %q = %d, which prints as %q", text, int64(id), canonical)
		}
	})
}

func FuzzParse(f *testing.F) {
	fuzzForm(f, ID.String, Parse, "zzzzzzzzzzz", "AzL8n0Y58m8", "LygHa16AHYG", "0000000000-")
}

func FuzzParseDecimal(f *testing.F) {
	fuzzForm(f, ID.Decimal, ParseDecimal, "01", "-1", "9223372036854775808", "9999999999999999999")
}

func FuzzParseBase32(f *testing.F) {
	fuzzForm(f, ID.Base32, ParseBase32, "8000000000000", "ZZZZZZZZZZZZZ", "ooooOOilOOlab")
}

func FuzzParseHex(f *testing.F) {
	fuzzForm(f, ID.Hex, ParseHex, "8000000000000000", "000000000000000A")
}
