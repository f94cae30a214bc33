package upstream

import (
	"math/rand/v2"
	"testing"
)

// TestTurnsBeginAnywhere: each round gives every replica one turn and begins where it is told to, so
// that whoever sends each n-th request to the same place meets them all.
func TestTurnsBeginAnywhere(t *testing.T) {
	const places, rounds = 4, 400
	r, starts := rand.New(rand.NewPCG(1, 2)), make([]uint64, rounds)
	for i := range starts {
		starts[i] = r.Uint64()
	}
	order := &environment{Options: Options{Starts: func(round uint64) uint64 { return starts[round] }}}
	p, all := &Balancer{service: &service{env: order}}, make([]candidate, places)
	for i := range all {
		all[i].Replica = new(Replica)
	}
	at := func(c candidate) int {
		for i := range all {
			if all[i].Replica == c.Replica {
				return i
			}
		}
		return -1
	}
	var first [places]int
	for round := range rounds {
		var turns [places]int
		for turn := range places {
			i := at(p.next(all, places, nil, false))
			if turn == 0 {
				first[i]++
				if want := int(starts[round] % places); i != want {
					t.Fatalf("round %d begins at %d, want %d", round, i, want)
				}
			}
			turns[i]++
		}
		if turns != [places]int{1, 1, 1, 1} {
			t.Fatalf("the turns of round %d are %v, want one for each", round, turns)
		}
	}
	for i, n := range first { // 100 each; the numbers of this seed
		if n < 70 || n > 130 {
			t.Errorf("replica %d begins %d of %d rounds", i, n, rounds)
		}
	}
}

// TestTurnsDoNotRepeat: of what a client may know, the number of the round, the place cannot be told.
// A start that is constant or counts up would begin each 4th round at the same place.
func TestTurnsDoNotRepeat(t *testing.T) {
	for stride := uint64(1); stride <= 8; stride++ {
		var met [4]bool
		for i := range uint64(1024) { // one of them is not met once in 10^128 times
			met[randomStart(i*stride)%4] = true
		}
		if met != [4]bool{true, true, true, true} {
			t.Errorf("each round that is a multiple of %d begins at one of %v", stride, met)
		}
	}
}
