package idgen

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func ceilingFile(t testing.TB) string { return filepath.Join(t.TempDir(), "ceiling") }

func acquire(t *testing.T, path string, now int64) Lease {
	t.Helper()
	l, err := HighWater(path, Fixed(Worker{Number: 5})).Acquire(t.Context(), testScheme(t, LayoutA), now)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func TestHighWaterFloors(t *testing.T) {
	path := ceilingFile(t)
	l := acquire(t, path, 1000)
	if l.Floor() != 1000 || l.Ceiling() != 4000 {
		t.Errorf("first lease is [%d, %d], want [1000, 4000]", l.Floor(), l.Ceiling())
	}
	for now, want := range map[int64]int64{500: 5000, 2000: 5000, -1 << 40: 5000} { // never lowered
		if _, err := l.Extend(t.Context(), 2000); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Extend(t.Context(), now); got != want || err != nil {
			t.Errorf("Extend(%d) = %d, %v, want %d", now, got, err, want)
		}
	}
	l.(*highWaterLease).lock.Close() // a crash
	l = acquire(t, path, 2000)
	if l.Floor() != 5001 || l.Ceiling() != 8001 {
		t.Errorf("lease after a crash is [%d, %d], want [5001, 8001]", l.Floor(), l.Ceiling())
	}
	if err := l.Release(t.Context(), 5005); err != nil {
		t.Fatal(err)
	}
	if l = acquire(t, path, 2000); l.Floor() != 5006 {
		t.Errorf("floor after a release at 5005 = %d, want 5006", l.Floor())
	}
}

func TestHighWaterKeepsOthersOut(t *testing.T) {
	path := ceilingFile(t)
	l := acquire(t, path, 0)
	src := HighWater(path, Fixed(Worker{}))
	if _, err := src.Acquire(t.Context(), testScheme(t, LayoutA), 0); !errors.Is(err, ErrLocked) {
		t.Errorf("second Acquire: %v, want ErrLocked", err)
	}
	if err := l.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	acquire(t, path, 0)
}

func TestHighWaterRefusesAnotherScheme(t *testing.T) {
	path := ceilingFile(t)
	if err := acquire(t, path, 0).Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	later, err := NewScheme(LayoutA, testEpoch.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Scheme{later, testScheme(t, LayoutB)} {
		_, err := HighWater(path, Fixed(Worker{})).Acquire(t.Context(), s, 0)
		if !errors.Is(err, ErrSchemeMismatch) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want ErrSchemeMismatch naming the file", s.Fingerprint(), err)
		}
	}
	acquire(t, path, 0) // the lock was given back, and the scheme still fits
}

func TestHighWaterRefusesDamage(t *testing.T) {
	path := ceilingFile(t)
	if err := acquire(t, path, 123456).Release(t.Context(), 123456); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{"empty": {}, "appended": append(good[:len(good):len(good)], '\n')}
	for i := range good {
		damaged["cut after "+string(good[:i])] = good[:i]
		flipped := append([]byte(nil), good...)
		flipped[i] ^= 1
		damaged["flipped to "+string(flipped)] = flipped
	}
	for what, content := range damaged {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := HighWater(path, Fixed(Worker{})).Acquire(t.Context(), testScheme(t, LayoutA), 0)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: Acquire = %v, %v, want ErrCorrupt", what, l, err)
		}
	}
}

func TestHighWaterReportsAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "ceiling")
	if _, err := HighWater(path, Fixed(Worker{})).Acquire(t.Context(), testScheme(t, LayoutA), 0); err == nil {
		t.Error("Acquire in a missing directory succeeded")
	}
	path = ceilingFile(t)
	l := acquire(t, path, 0)
	if err := os.Mkdir(path+".new", 0o700); err != nil { // what cannot be written
		t.Fatal(err)
	}
	if ceiling, err := l.Extend(t.Context(), 5000); ceiling != 3000 || err == nil {
		t.Errorf("Extend that could not write = %d, %v, want the old ceiling 3000 and an error", ceiling, err)
	}
}

// A wrapped lease that is lost gives the lock back, so that the next Acquire can have it.
func TestHighWaterOverALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemorySource(Worker{})
		g := start(t, testScheme(t, LayoutA), HighWater(ceilingFile(t), m))
		first := mustNext(t, g)
		setErr(&m.extendErr, ErrLeaseLost)
		time.Sleep(1500 * time.Millisecond)
		setErr(&m.extendErr, nil)
		time.Sleep(4 * time.Second)
		if id := mustNext(t, g); id <= first || !g.Health().Held {
			t.Errorf("id %d after %d, %+v, want a lease held again", id, first, g.Health())
		}
	})
}

func TestHighWaterPassesErrorsOn(t *testing.T) {
	m := newMemorySource(Worker{})
	gone := errors.New("registry away")
	setErr(&m.acquireErr, gone)
	src := HighWater(ceilingFile(t), m)
	for range 2 { // the second would meet the lock of the first
		if _, err := src.Acquire(context.Background(), testScheme(t, LayoutA), 0); !errors.Is(err, gone) {
			t.Errorf("Acquire: %v, want the inner error", err)
		}
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add(markLine("time:41,worker:10,sequence:12@2026-01-01T00:00:00.000Z", 1234))
	f.Add(markLine("x", math.MaxInt64))
	f.Add("idgen-ceiling v1 x -5 00000000\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		mark, err := parseMark("file", text, "x")
		if err == nil && text != markLine("x", mark) {
			t.Errorf("parseMark(%q) = %d, which is written as %q", text, mark, markLine("x", mark))
		}
	})
}

func BenchmarkHighWaterExtend(b *testing.B) {
	s, _ := NewScheme(LayoutA, testEpoch)
	l, err := HighWater(ceilingFile(b), Fixed(Worker{})).Acquire(b.Context(), s, 0)
	if err != nil {
		b.Fatal(err)
	}
	for now := int64(1); b.Loop(); now++ {
		if _, err := l.Extend(b.Context(), now); err != nil {
			b.Fatal(err)
		}
	}
}
