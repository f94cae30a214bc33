package main

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"snowgate/idgen"
)

// BenchmarkNext is one call while the sequence is not used up: bursts of 3000
// at the start of a millisecond that has room for 4096. The generators take
// turns of 20 bursts, the first of which do not count, so that all of them are
// warm and meet the same moods of the machine. The figures are medians; x-add
// and x-snowgate say how many atomic adds, and how many calls of snowgate's Next,
// one call costs. One iteration is a turn of each.
func BenchmarkNext(b *testing.B) {
	const burst, turn, warm = 3000, 20, 4
	contestants := append([]generator{{"atomic add", 0, startAdd}}, generators...)
	draws := make([]func(int), len(contestants))
	times := make([][]float64, len(contestants))
	for i, c := range contestants {
		var stop func()
		draws[i], stop = c.start()
		defer stop()
	}
	for b.Loop() {
		for i, draw := range draws {
			for n := range turn {
				millisecond()
				began := time.Now()
				draw(burst)
				took := float64(time.Since(began).Nanoseconds()) / burst
				if n >= warm {
					times[i] = append(times[i], took)
				}
			}
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	median := func(i int) float64 { return times[i][len(times[i])/2] }
	for i, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(i), "ns/id")
			b.ReportMetric(times[i][0], "min-ns/id")
			b.ReportMetric(median(i)/median(0), "x-add")
			b.ReportMetric(median(i)/median(1), "x-snowgate")
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
			draw, stop := g.start()
			defer stop()
			var times []float64
			for b.Loop() {
				time.Sleep(30 * time.Millisecond)
				began := time.Now()
				draw(20_000)
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
