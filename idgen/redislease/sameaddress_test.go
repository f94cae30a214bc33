package redislease

import (
	"errors"
	"testing"

	"snowgate/idgen"
)

// TestTwoAtOneAddress: if two gateways have the same address, the later one gets the number, and
// the earlier one takes another number and keeps it. They do not take turns for ever.
func TestTwoAtOneAddress(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc := scheme(t, layoutA)
		settle(t, s, sc)
		earlier := source(t, s.rdb, Any(), quick("10.0.0.9:8080"))
		later := source(t, s.rdb, Any(), quick("10.0.0.9:8080"))
		was := acquire(t, earlier, sc)
		taken := make(chan idgen.Lease, 1)
		go func() { taken <- acquire(t, later, sc) }() // waits for the ceiling of the earlier one
		extended := error(nil)
		for extended == nil {
			_, extended = was.Extend(t.Context(), now(sc))
		}
		if !errors.Is(extended, idgen.ErrLeaseLost) {
			t.Fatalf("Extend() = %v, want ErrLeaseLost", extended)
		}
		other := acquire(t, earlier, sc)
		if other.Worker() == was.Worker() {
			t.Fatalf("both have %v", was.Worker())
		}
		got := <-taken
		if got.Worker() != was.Worker() {
			t.Errorf("the later one has %v, want %v, whose ceiling it waited for", got.Worker(), was.Worker())
		}
		for range 5 {
			for name, l := range map[string]idgen.Lease{"earlier": other, "later": got} {
				if _, err := l.Extend(t.Context(), now(sc)); err != nil {
					t.Errorf("the %s one: %v", name, err)
				}
			}
		}
		// A restart of the later one gets its number back, not that of the other.
		again := acquire(t, source(t, s.rdb, Any(), quick("10.0.0.9:8080")), sc)
		if again.Worker() != got.Worker() {
			t.Errorf("a restart gets %v, want %v", again.Worker(), got.Worker())
		}
	})
}
