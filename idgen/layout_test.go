package idgen

import (
	"encoding"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var layouts = []Layout{
	LayoutA, LayoutB, LayoutC, LayoutD, LayoutE, LayoutWide, LayoutJSSafe,
	mustLayout("time:41,sequence:22"),                       // no worker at all
	mustLayout("time:62,sequence:1"),                        // 63 bits in two fields
	mustLayout("time:41,sequence:12,worker:10"),             // the worker lowest
	mustLayout("time:40,rollback:3,sequence:9"),             // bits to spare
	mustLayout("time:42,datacenter:3,worker:7,sequence:10"), // the planning example, 62 bits
}

func TestSystemCVector(t *testing.T) {
	s, err := NewScheme(LayoutC, time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	const id = 6979004485312020512
	want := Parts{time.Date(2022, 9, 23, 9, 12, 12, 931e6, time.UTC), 2, 3, 0, 4}
	if got, err := s.Decompose(id); got != want || err != nil {
		t.Errorf("Decompose(%d) = %+v, %v, want %+v", id, got, err, want)
	}
	if got, err := s.Compose(want); got != id || err != nil {
		t.Errorf("Compose(%+v) = %d, %v, want %d", want, got, err, id)
	}
}

func TestComposeIsTheInverseOfDecompose(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, l := range layouts {
		for range 2000 {
			f := Fields{
				rng.Int64() & l.Max(FieldTime), rng.Int64() & l.Max(FieldDatacenter), rng.Int64() & l.Max(FieldWorker),
				rng.Int64() & l.Max(FieldRollback), rng.Int64() & l.Max(FieldSequence),
			}
			id, err := l.Pack(f)
			if err != nil || id < 0 {
				t.Fatalf("%s: Pack(%+v) = %d, %v", l, f, int64(id), err)
			}
			if back, err := l.Unpack(id); back != f || err != nil {
				t.Fatalf("%s: Unpack(%d) = %+v, %v, want %+v", l, id, back, err, f)
			}
		}
	}
}

func TestTimeIsMostSignificant(t *testing.T) {
	for _, l := range layouts {
		late, _ := l.Pack(Fields{Time: 1})
		early, err := l.Pack(Fields{0, l.Max(FieldDatacenter), l.Max(FieldWorker), l.Max(FieldRollback), l.Max(FieldSequence)})
		if err != nil || early >= late {
			t.Errorf("%s: the last id of a millisecond, %d, is not below the first of the next, %d", l, early, late)
		}
	}
}

func TestPackRefusesOverflow(t *testing.T) {
	for _, l := range layouts {
		for field, want := range [fieldCount]error{ErrTimeExhausted, ErrFieldRange, ErrFieldRange, ErrFieldRange, ErrFieldRange} {
			for _, v := range []int64{-1, l.Max(Field(field)) + 1, -1 << 63} {
				values := [fieldCount]int64{}
				values[field] = v
				want := want
				if field == 0 && v < 0 {
					want = ErrBeforeEpoch
				}
				_, err := l.Pack(Fields{values[0], values[1], values[2], values[3], values[4]})
				if !errors.Is(err, want) {
					t.Errorf("%s: Pack with %s %d: %v, want %v", l, Field(field), v, err, want)
				}
			}
		}
	}
}

func TestUnpackRefusesForeignIDs(t *testing.T) {
	for _, id := range []ID{-1, 1 << 53, largest} {
		if f, err := LayoutJSSafe.Unpack(id); !errors.Is(err, ErrRange) {
			t.Errorf("Unpack(%d) = %+v, %v, want ErrRange", int64(id), f, err)
		}
	}
}

func TestParseLayout(t *testing.T) {
	for _, l := range layouts {
		if got, err := ParseLayout(l.String()); got != l || err != nil {
			t.Errorf("ParseLayout(%q) = %v, %v", l, got, err)
		}
	}
	var _ encoding.TextUnmarshaler = new(Layout)
	var _ encoding.TextMarshaler = Layout{}
}

func TestParseLayoutRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "unknown field"},
		{"time:41", "sequence is missing"},
		{"worker:10,time:41,sequence:12", "time must be the first"},
		{"worker:10,sequence:12", "time must be the first"},
		{"time:41,worker:11,sequence:12", "sum to 64"},
		{"time:41,worker:10,worker:2,sequence:10", "worker given twice"},
		{"time:41,node:10,sequence:12", `unknown field "node"`},
		{"time:41,worker,sequence:12", "width"},
		{"time:41,worker:0,sequence:12", "width"},
		{"time:41,worker:-1,sequence:12", "width"},
		{"time:041,worker:10,sequence:12", "width"},
		{"time:41, worker:10,sequence:12", "unknown field"},
		{"time:300,sequence:12", "width"},
		{"time:41,node:1,sequence:x", `unknown field "node"`}, // both faults are told
		{"time:41,node:1,sequence:x", `width "x"`},
	}
	for _, test := range tests {
		l, err := ParseLayout(test.text)
		if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseLayout(%q) = %v, %v, want an ErrLayout that tells %q", test.text, l, err, test.want)
		}
	}
}

func TestCapacity(t *testing.T) {
	tests := []struct {
		layout           Layout
		workers, perMS   int64
		years            float64
		largestBelowBits int
	}{
		{LayoutA, 1024, 4096, 69.7, 63},
		{LayoutB, 1024, 4096, 69.7, 63},
		{LayoutC, 128, 4096, 69.7, 63},
		{LayoutD, 256, 4096, 69.7, 63}, // 8 machines, 32 processes
		{LayoutWide, 16, 262144, 69.7, 63},
		{LayoutJSSafe, 32, 128, 69.7, 53},
	}
	for _, test := range tests {
		l := test.layout
		if l.Workers() != test.workers || l.PerMillisecond() != test.perMS {
			t.Errorf("%s: %d workers, %d per ms, want %d, %d", l, l.Workers(), l.PerMillisecond(), test.workers, test.perMS)
		}
		s := testScheme(t, l)
		if years := s.Exhausts().Sub(testEpoch).Hours() / 24 / 365.25; years < test.years-.05 || years > test.years+.05 {
			t.Errorf("%s: lasts %.2f years, want %.1f", l, years, test.years)
		}
		id, err := l.Pack(Fields{l.Max(FieldTime), l.Max(FieldDatacenter), l.Max(FieldWorker), l.Max(FieldRollback), l.Max(FieldSequence)})
		if err != nil || id>>test.largestBelowBits != 0 {
			t.Errorf("%s: largest id %d, %v, want it below 2^%d", l, id, err, test.largestBelowBits)
		}
	}
}

func TestWorkerIndex(t *testing.T) {
	for _, l := range layouts {
		for _, n := range []int64{0, l.Workers() / 3, l.Workers() / 2, l.Workers() - 1} {
			w := l.Worker(n)
			if err := l.CheckWorker(w); err != nil || l.WorkerIndex(w) != n {
				t.Errorf("%s: Worker(%d) = %+v, %v, back %d", l, n, w, err, l.WorkerIndex(w))
			}
		}
		if err := l.CheckWorker(l.Worker(l.Workers())); !errors.Is(err, ErrFieldRange) {
			t.Errorf("%s: CheckWorker of one too many: %v, want ErrFieldRange", l, err)
		}
	}
}

func TestSchemeTimes(t *testing.T) {
	s := testScheme(t, LayoutA)
	at := testEpoch.Add(123456 * time.Millisecond)
	id, _ := s.Compose(Parts{Time: at.Add(999 * time.Microsecond), Worker: 3, Sequence: 9})
	if got := s.Time(id); !got.Equal(at) {
		t.Errorf("Time = %v, want %v: cut to the millisecond", got, at)
	}
	if first := s.First(at); first > id || s.First(at.Add(time.Millisecond)) <= id {
		t.Errorf("First does not enclose %v", id)
	}
	if got := s.First(testEpoch.Add(-time.Hour)); got != 0 {
		t.Errorf("First before the epoch = %d, want 0", got)
	}
	last, _ := s.Compose(Parts{Time: s.Exhausts().Add(-time.Millisecond)})
	if got := s.First(s.Exhausts().AddDate(10, 0, 0)); got != last {
		t.Errorf("First after the end = %d, want %d", got, last)
	}
	if _, err := s.Compose(Parts{Time: s.Exhausts()}); !errors.Is(err, ErrTimeExhausted) {
		t.Errorf("Compose at the end: %v, want ErrTimeExhausted", err)
	}
}

func TestNewSchemeRefuses(t *testing.T) {
	if _, err := NewScheme(Layout{}, testEpoch); !errors.Is(err, ErrLayout) {
		t.Errorf("zero layout: %v, want ErrLayout", err)
	}
	for _, epoch := range []time.Time{testEpoch.Add(1), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, err := NewScheme(LayoutA, epoch); err == nil {
			t.Errorf("NewScheme with epoch %v succeeded, want an error", epoch)
		}
	}
	if _, err := (Scheme{}).Compose(Parts{}); !errors.Is(err, ErrLayout) {
		t.Errorf("zero scheme: %v, want ErrLayout", err)
	}
}

func TestFingerprint(t *testing.T) {
	a := testScheme(t, LayoutA)
	if got, want := a.Fingerprint(), "time:41,worker:10,sequence:12@1999-07-01T00:00:00.000Z"; got != want {
		t.Errorf("Fingerprint() = %q, want %q", got, want)
	}
	zone := time.FixedZone("", 3600)
	if b, _ := NewScheme(LayoutA, testEpoch.In(zone)); b != a {
		t.Error("the zone in which the epoch is written makes another scheme")
	}
}

func FuzzParseLayout(f *testing.F) {
	for _, l := range layouts {
		f.Add(l.String())
	}
	for _, s := range []string{"", "time:41", "time:063,sequence:1", "time:41,,", "time:41,sequence:12,rollback:256"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLayout(text)
		if err != nil {
			return
		}
		if l.String() != text {
			t.Errorf("ParseLayout(%q) prints as %q", text, l)
		}
		id, err := l.Pack(Fields{l.Max(FieldTime), l.Max(FieldDatacenter), l.Max(FieldWorker), l.Max(FieldRollback), l.Max(FieldSequence)})
		if err != nil || id < 0 {
			t.Errorf("%q: the largest id is %d, %v", text, int64(id), err)
		}
	})
}
