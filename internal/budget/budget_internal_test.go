package budget

import (
	"testing"
	"testing/synctest"
	"time"
)

// What rings at the instant at which the wait ends for another reason rings for nobody else.
func TestRingThatNobodyHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers Timers
		a := timers.lend(time.Now().Add(time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(a.rings) != 1 {
			t.Fatal("it does not ring")
		}
		timers.giveBack(a)
		if len(a.rings) != 0 {
			t.Error("it rings for the next one")
		}
	})
}

// Done blocks nobody, also if the timer was first and the one who waits has not been told yet.
func TestDoneAfterTheAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWaiter()
		w.ringAt(time.Now())
		synctest.Wait()
		w.Done()
		if len(w.rings) != 2 {
			t.Errorf("it was told %d times, want by the timer and by Done", len(w.rings))
		}
	})
}
