package idgen

import (
	"context"
	"testing"
	"time"
)

func wideGenerator(b testing.TB, text string, opts ...Option) *Generator {
	l, err := ParseLayout(text)
	if err != nil {
		b.Fatal(err)
	}
	s, err := NewScheme(l, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		b.Fatal(err)
	}
	g, err := New(context.Background(), s, Fixed(Worker{}), opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close(context.Background()) })
	return g
}

// The floor of Next: one atomic add on a word of its own.
func BenchmarkAtomicAdd(b *testing.B) {
	word := new(tenure)
	for b.Loop() {
		word.word.Add(1)
	}
}

// The cost of Next while the sequence is not used up.
func BenchmarkNext(b *testing.B) {
	g := wideGenerator(b, "time:41,sequence:22")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNextParallel(b *testing.B) {
	g := wideGenerator(b, "time:41,sequence:22")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Next(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// The default layout at its limit: 244 ns are 4 096 000 per second.
func BenchmarkNextSaturated(b *testing.B) {
	g := wideGenerator(b, LayoutDefault.String())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// Per batch of 1024 ids, with a sequence that is not used up.
func BenchmarkFill1024(b *testing.B) {
	g := wideGenerator(b, "time:39,sequence:24")
	ids := make([]ID, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Fill(ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/id")
}

// The 18-bit sequence at its limit of 262 144 000 per second.
func BenchmarkFillWide(b *testing.B) {
	g := wideGenerator(b, LayoutWide.String())
	ids := make([]ID, 4096)
	for b.Loop() {
		if _, err := g.Fill(ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds()/1e6, "Mids/s")
}

// 20 000 ids at once after 30 ms of nothing.
func BenchmarkBurst20000(b *testing.B) {
	g := wideGenerator(b, LayoutDefault.String())
	for b.Loop() {
		b.StopTimer()
		time.Sleep(30 * time.Millisecond)
		b.StartTimer()
		for range 20_000 {
			if _, err := g.Next(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	var buf [TextLen]byte
	id := ID(6979004485312020512)
	b.ReportAllocs()
	for b.Loop() {
		id.Append(buf[:0])
		id++
	}
}

func BenchmarkString(b *testing.B) {
	id := ID(6979004485312020512)
	b.ReportAllocs()
	for b.Loop() {
		_ = id.String()
	}
}

func BenchmarkParse(b *testing.B) {
	text := ID(6979004485312020512).String()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
