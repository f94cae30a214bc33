// Command idgen measures how much of its limit a generator of ids delivers when
// it is asked for as many as it can make, and what that costs in processor time.
//
//	go run . [-for 2s] [-runs 3] [-goroutines 1,1000] [-only name] [-processes 1,3]
//
// The benchmarks beside it measure single calls:
//
//	go test -bench . -count 5
//
// It compares idgen of this repository with public generators. All that can be
// configured have 41 bits of time, 10 of worker and 12 of sequence, so that the
// limit is 4 096 000 ids per second. At the end it has one process, and three at once, make the ids
// of system D as decimal strings.
package main

import (
	"context"
	"sync/atomic"
	"time"

	bwmarrin "github.com/bwmarrin/snowflake"
	godruoyi "github.com/godruoyi/go-snowflake"
	holdno "github.com/holdno/snowFlakeByGo"
	"github.com/muyo/sno"
	"github.com/rs/xid"
	"github.com/sony/sonyflake/v2"

	"snowgate/idgen"
)

// generator is one of those compared. The loop around the single calls is part of
// each, so that what is measured is the generator and not a function value.
type generator struct {
	name  string
	limit float64 // ids per second that the layout allows; 0: none
	start func() (draw func(n int), stop func())
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var generators = []generator{
	{"snowgate", 4_096_000, startSnowgate},
	{"bwmarrin", 4_096_000, func() (func(int), func()) {
		node, err := bwmarrin.NewNode(1)
		must(err)
		return func(n int) {
			for range n {
				node.Generate()
			}
		}, nothing
	}},
	{"sonyflake-v2", 4_096_000, func() (func(int), func()) {
		sf, err := sonyflake.New(sonyflake.Settings{
			BitsSequence: 12, BitsMachineID: 10, TimeUnit: time.Millisecond, StartTime: epoch,
			MachineID: func() (int, error) { return 1, nil },
		})
		must(err)
		return func(n int) {
			for range n {
				_, err := sf.NextID()
				must(err)
			}
		}, nothing
	}},
	{"godruoyi", 4_095_000, func() (func(int), func()) { // it never uses the last sequence number
		return func(n int) {
			for range n {
				_, err := godruoyi.NextID()
				must(err)
			}
		}, nothing
	}},
	{"holdno", 4_096_000, func() (func(int), func()) {
		w, err := holdno.NewWorker(1)
		must(err)
		return func(n int) {
			for range n {
				w.GetId()
			}
		}, nothing
	}},
	{"sno-80bit", 16_384_000, func() (func(int), func()) {
		g, err := sno.NewGenerator(nil, nil)
		must(err)
		return func(n int) {
			for range n {
				g.New(0)
			}
		}, nothing
	}},
	{"xid-96bit", 0, func() (func(int), func()) {
		return func(n int) {
			for range n {
				xid.New()
			}
		}, nothing
	}},
}

func startSnowgate() (func(int), func()) {
	g := newSnowgate(idgen.LayoutDefault)
	return func(n int) {
		for range n {
			_, err := g.Next()
			must(err)
		}
	}, func() { must(g.Close(context.Background())) }
}

// startAdd is no generator but the least that one can cost: an atomic add, and
// nothing around it.
func startAdd() (func(int), func()) {
	var word struct { // on a cache line of its own
		_ [64]byte
		n atomic.Int64
		_ [56]byte
	}
	return func(n int) {
		for range n {
			word.n.Add(1)
		}
	}, nothing
}

func newSnowgate(l idgen.Layout) *idgen.Generator {
	s, err := idgen.NewScheme(l, epoch)
	must(err)
	g, err := idgen.New(context.Background(), s, idgen.Fixed(idgen.Worker{}), idgen.WithMaxWait(time.Second))
	must(err)
	return g
}

func nothing() {}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
