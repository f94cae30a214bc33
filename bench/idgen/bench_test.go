package main

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"snowgate/idgen"
)

// BenchmarkNext is one call while the sequence is not used up: bursts of 3000
// at the start of a millisecond that has room for 4096. ns/id is the median
// burst.
func BenchmarkNext(b *testing.B) {
	const burst = 3000
	for _, g := range generators {
		b.Run(g.name, func(b *testing.B) {
			next, stop := g.start()
			defer stop()
			times := make([]float64, 0, b.N)
			for b.Loop() {
				millisecond()
				began := time.Now()
				for range burst {
					next()
				}
				times = append(times, float64(time.Since(began).Nanoseconds())/burst)
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "ns/id")
			b.ReportMetric(times[0], "min-ns/id")
		})
	}
}

// millisecond returns at the start of one.
func millisecond() {
	for ms := time.Now().UnixMilli(); time.Now().UnixMilli() == ms; {
	}
}

// BenchmarkBurst is 20 000 ids after 30 ms of nothing.
func BenchmarkBurst(b *testing.B) {
	for _, g := range generators {
		b.Run(g.name, func(b *testing.B) {
			next, stop := g.start()
			defer stop()
			var times []float64
			for b.Loop() {
				time.Sleep(30 * time.Millisecond)
				began := time.Now()
				for range 20_000 {
					next()
				}
				times = append(times, float64(time.Since(began).Microseconds()))
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "µs/burst")
			b.ReportMetric(times[len(times)-1], "max-µs/burst")
		})
	}
}

// BenchmarkFill is idgen alone: the public generators have no batches.
func BenchmarkFill(b *testing.B) {
	for _, layout := range []string{"time:39,sequence:24", idgen.LayoutWide.String()} {
		for _, n := range []int{8, 64, 1024, 4096} {
			b.Run(layout+"/"+strconv.Itoa(n), func(b *testing.B) {
				l, err := idgen.ParseLayout(layout)
				must(err)
				g := newSnowgate(l)
				defer g.Close(b.Context())
				ids := make([]idgen.ID, n)
				for b.Loop() {
					_, err := g.Fill(ids)
					must(err)
				}
				total := float64(b.N) * float64(n)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/total, "ns/id")
				b.ReportMetric(total/b.Elapsed().Seconds()/1e6, "Mids/s")
			})
		}
	}
}
