package idgen_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"snowgate/idgen"
)

var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// A worker number from the configuration, and a file that remembers how far ids have been issued.
func Example() {
	dir, err := os.MkdirTemp("", "ids")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	scheme, err := idgen.NewScheme(idgen.LayoutDefault, epoch)
	if err != nil {
		log.Fatal(err)
	}
	source := idgen.HighWater(filepath.Join(dir, "ceiling"), idgen.Fixed(idgen.Worker{Number: 7}))
	gen, err := idgen.New(ctx, scheme, source)
	if err != nil {
		log.Fatal(err)
	}
	defer gen.Close(ctx)

	first, err := gen.Next()
	if err != nil {
		log.Fatal(err)
	}
	second, err := gen.Next()
	if err != nil {
		log.Fatal(err)
	}
	parts, err := scheme.Decompose(second)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("rising:", first < second, first.String() < second.String())
	fmt.Println("worker:", parts.Worker)
	// Output:
	// rising: true true
	// worker: 7
}

func ExampleScheme_Decompose() {
	scheme, err := idgen.NewScheme(idgen.LayoutC, time.UnixMilli(0))
	if err != nil {
		log.Fatal(err)
	}
	p, err := scheme.Decompose(6979004485312020512)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Time.Format(time.RFC3339Nano))
	fmt.Println("datacenter", p.Datacenter, "worker", p.Worker, "sequence", p.Sequence, "rollback", p.Rollback)
	// Output:
	// 2022-09-23T09:12:12.931Z
	// datacenter 2 worker 3 sequence 4 rollback 0
}

func ExampleParseLayout() {
	l, err := idgen.ParseLayout("time:41,datacenter:3,worker:5,rollback:2,sequence:12")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Workers(), "workers,", l.PerMillisecond(), "ids per millisecond each")
	_, err = idgen.ParseLayout("time:41,worker:12,sequence:12")
	fmt.Println(err)
	// Output:
	// 256 workers, 4096 ids per millisecond each
	// idgen: invalid layout "time:41,worker:12,sequence:12": widths sum to 65, more than 63
}

func ExampleID() {
	id := idgen.ID(6979004485312020512)
	text, err := json.Marshal(map[string]idgen.ID{"id": id})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
	fmt.Println(id.Decimal(), id.Base32(), id.Hex())
	_, err = idgen.Parse("zzzzzzzzzzz")
	fmt.Println(err, errors.Is(err, idgen.ErrRange))
	// Output:
	// {"id":"8JXuhf7btUO"}
	// 6979004485312020512 61PK7K9GE3010 60da679a60e18020
	// idgen: "zzzzzzzzzzz" is not an id in base62: does not fit 63 bits true
}

func ExampleGenerator_Fill() {
	scheme, err := idgen.NewScheme(idgen.LayoutDefault, epoch)
	if err != nil {
		log.Fatal(err)
	}
	gen, err := idgen.New(context.Background(), scheme, idgen.Fixed(idgen.Worker{}))
	if err != nil {
		log.Fatal(err)
	}
	defer gen.Close(context.Background())

	ids := make([]idgen.ID, 1000)
	n, err := gen.Fill(ids) // on error, the first n are filled
	fmt.Println(n, err)
	// Output: 1000 <nil>
}

// A revocation of everything a worker issued between two instants is one interval of ids per
// worker: no clock takes part in the comparison.
func ExampleScheme_First() {
	scheme, err := idgen.NewScheme(idgen.LayoutDefault, epoch)
	if err != nil {
		log.Fatal(err)
	}
	noon := epoch.Add(12 * time.Hour)
	id, err := scheme.Compose(idgen.Parts{Time: noon, Worker: 1023, Sequence: 4095})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id >= scheme.First(noon), id < scheme.First(noon.Add(time.Millisecond)))
	// Output: true true
}

// at is a clock that was set back to the same instant for every reading.
type at time.Time

func (c at) Now() (int64, error) { return time.Time(c).UnixMilli(), nil }

// Wrong: a generator that starts anew with the number of an earlier one, on a clock that was set
// back, issues the same ids. A fixed number cannot notice.
func ExampleFixed_misuse() {
	scheme, err := idgen.NewScheme(idgen.LayoutDefault, epoch)
	if err != nil {
		log.Fatal(err)
	}
	clock := idgen.WithClock(at(epoch.Add(time.Hour)))
	var ids [2]idgen.ID
	for i := range ids {
		gen, err := idgen.New(context.Background(), scheme, idgen.Fixed(idgen.Worker{Number: 7}), clock)
		if err != nil {
			log.Fatal(err)
		}
		if ids[i], err = gen.Next(); err != nil {
			log.Fatal(err)
		}
		gen.Close(context.Background())
	}
	fmt.Println("repeated:", ids[0] == ids[1])
	// Output: repeated: true
}

// Right: a source with a ceiling. The second generator starts above all that the first could have
// issued; and while the first is alive, it is refused.
func ExampleHighWater() {
	dir, err := os.MkdirTemp("", "ids")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	scheme, err := idgen.NewScheme(idgen.LayoutDefault, epoch)
	if err != nil {
		log.Fatal(err)
	}
	source := idgen.HighWater(filepath.Join(dir, "ceiling"), idgen.Fixed(idgen.Worker{Number: 7}))
	gen, err := idgen.New(context.Background(), scheme, source)
	if err != nil {
		log.Fatal(err)
	}
	defer gen.Close(context.Background())
	_, err = idgen.New(context.Background(), scheme, source)
	fmt.Println(errors.Is(err, idgen.ErrLocked))
	// Output: true
}
