package limit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	tests := []struct {
		text string
		want Rate
		back string // what String makes of it, if that is another text
	}{
		{"100/s", Rate{100, time.Second}, ""},
		{"600/m", Rate{600, time.Minute}, ""},
		{"5/h", Rate{5, time.Hour}, ""},
		{"200/10s", Rate{200, 10 * time.Second}, ""},
		{"1/24h", Rate{1, 24 * time.Hour}, ""},
		{"1000000/s", Rate{1_000_000, time.Second}, ""},
		{"7/60s", Rate{7, time.Minute}, "7/m"},
		{"7/1h", Rate{7, time.Hour}, "7/h"},
		{"7/90m", Rate{7, 90 * time.Minute}, ""},
	}
	for _, tt := range tests {
		got, err := ParseRate(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
		back := tt.back
		if back == "" {
			back = tt.text
		}
		if got.String() != back {
			t.Errorf("ParseRate(%q).String() = %q, want %q", tt.text, got, back)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	tests := map[string]string{ // text, and a part of the error
		"":           "as in 100/s",
		"100":        "as in 100/s",
		"0/s":        "as in 100/s", // nobody could come at all: disable the client instead
		"-1/s":       "as in 100/s",
		"+1/s":       "as in 100/s",
		"01/s":       "as in 100/s",
		"1.5/s":      "as in 100/s",
		"1/0s":       "as in 100/s",
		"1/ms":       "as in 100/s",
		"1/d":        "as in 100/s",
		" 1/s":       "as in 100/s",
		"1/s\n":      "as in 100/s",
		"1 / s":      "as in 100/s",
		"1/s;burst":  "as in 100/s",
		"1e3/s":      "as in 100/s",
		"١/s":        "as in 100/s",
		"1000001/s":  "1 to 1000000 events",
		"1/25h":      "per 1s to 24h0m0s",
		"1/99999h":   "per 1s to 24h0m0s",
		"1/100000s":  "as in 100/s",
		"99999999/s": "as in 100/s",
	}
	for text, want := range tests {
		got, err := ParseRate(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRate(%q) = %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestRateValid(t *testing.T) {
	for _, r := range []Rate{{}, {1, time.Second}, {MaxCount, MaxPer}} {
		if err := r.Valid(); err != nil {
			t.Errorf("%#v.Valid() = %v", r, err)
		}
	}
	for _, r := range []Rate{{0, time.Second}, {1, 0}, {-1, time.Second}, {1, -time.Second}, {1, time.Millisecond}, {1, 1500 * time.Millisecond}, {1, 25 * time.Hour}} {
		if r.Valid() == nil {
			t.Errorf("%#v.Valid() = nil, want an error", r)
		}
	}
}

func TestRateJSON(t *testing.T) {
	type document struct {
		Rate Rate `json:"rate,omitzero"`
	}
	for _, text := range []string{`{"rate":"200/10s"}`, `{}`} {
		var d document
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if back, err := json.Marshal(d); err != nil || string(back) != text {
			t.Errorf("%s became %s, %v", text, back, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"rate":"often"}`), new(document)); err == nil {
		t.Error(`the rate "often" was accepted`)
	}
	if text, err := json.Marshal(Rate{1, time.Millisecond}); err == nil {
		t.Errorf("an invalid rate became %s", text)
	}
}

func TestTakeIsHonest(t *testing.T) {
	rate := Rate{3, time.Second} // its interval is no whole number of nanoseconds
	var arrival time.Duration
	var d Decision
	for _, remaining := range []int{2, 1, 0} {
		arrival, d = rate.Take(arrival, 0)
		if !d.Allowed || d.Remaining != remaining {
			t.Fatalf("Take() = %+v, want %d remaining", d, remaining)
		}
	}
	_, d = rate.Take(arrival, 0)
	if d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
		t.Fatalf("Take() after the burst = %+v, want a refusal with RetryAfter", d)
	}
	if _, early := rate.Take(arrival, d.RetryAfter-1); early.Allowed {
		t.Errorf("allowed before RetryAfter of %s has passed", d.RetryAfter)
	}
	if _, later := rate.Take(arrival, d.RetryAfter); !later.Allowed {
		t.Errorf("refused after RetryAfter of %s", d.RetryAfter)
	}
	if _, full := rate.Take(arrival, d.Reset); full.Remaining != rate.Count-1 {
		t.Errorf("after Reset of %s, %d remain after one more, want %d", d.Reset, full.Remaining, rate.Count-1)
	}
}

func TestTakeWithoutRate(t *testing.T) {
	if _, d := (Rate{}).Take(0, time.Hour); d != (Decision{Allowed: true}) {
		t.Errorf("Take() = %+v, want no limit", d)
	}
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"100/s", "600/m", "5/h", "200/10s", "1/24h", "3/s", "7/m", "", "0/s", "1/0s", "9999999/99999h", "+1/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := ParseRate(text)
		if err != nil {
			if !rate.IsZero() {
				t.Fatalf("ParseRate(%q) = %v and an error", text, rate)
			}
			return
		}
		if err := rate.Valid(); err != nil {
			t.Fatalf("ParseRate(%q) = %v, which is not valid: %v", text, rate, err)
		}
		if back, err := ParseRate(rate.String()); err != nil || back != rate {
			t.Fatalf("ParseRate(%q) = %v, whose text %q becomes %v, %v", text, rate, rate.String(), back, err)
		}
		if rate.Interval()*time.Duration(rate.Count) < rate.Per {
			t.Fatalf("%d intervals of %s are shorter than %s", rate.Count, rate.Interval(), rate.Per)
		}
	})
}
