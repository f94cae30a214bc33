package idgen

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

func testPermutation(t testing.TB) *Permutation {
	t.Helper()
	p, err := NewPermutation([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPermutationIsOneToOne(t *testing.T) {
	p := testPermutation(t)
	rng := rand.New(rand.NewPCG(4, 4))
	ids := []ID{0, 1, largest - 1, largest}
	for range 5000 {
		ids = append(ids, ID(rng.Int64()))
	}
	for _, id := range ids {
		hidden := p.Hide(id)
		if hidden < 0 || p.Reveal(hidden) != id {
			t.Fatalf("Hide(%d) = %d, Reveal = %d", id, hidden, p.Reveal(hidden))
		}
		if p.Hide(p.Reveal(id)) != id {
			t.Fatalf("Hide(Reveal(%d)) = %d", id, p.Hide(p.Reveal(id)))
		}
	}
}

// Neighbours must not look like neighbours: about half of the bits differ.
func TestPermutationScatters(t *testing.T) {
	p := testPermutation(t)
	differ, n := 0, 2000
	for id := range ID(n) {
		differ += bits.OnesCount64(uint64(p.Hide(id) ^ p.Hide(id+1)))
	}
	if mean := float64(differ) / float64(n); mean < 30.5 || mean > 32.5 {
		t.Errorf("hidden neighbours differ in %.1f bits of 63, want about 31.5", mean)
	}
}

// The mapping must never change: ids shown yesterday are revealed tomorrow.
func TestPermutationIsPinned(t *testing.T) {
	const pinned = 5476396621920944959
	p := testPermutation(t)
	if got := p.Hide(6979004485312020512); got != pinned {
		t.Errorf("Hide = %d, want %d as ever", got, int64(pinned))
	}
	other, _ := NewPermutation([]byte("0123456789abcdeF"))
	if other.Hide(1) == p.Hide(1) {
		t.Error("another key gives the same mapping")
	}
	if _, err := NewPermutation([]byte("short")); err == nil {
		t.Error("a key of 5 bytes was accepted")
	}
}

func BenchmarkHide(b *testing.B) {
	p := testPermutation(b)
	id := ID(0)
	for b.Loop() {
		p.Hide(id)
		id++
	}
}
