package deadline

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTimerFiresAtTheEndOfAWait: a timer that has fired when it is given back delivers nothing to
// the next borrower.
func TestTimerFiresAtTheEndOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers Timers
		timer := timers.borrow(time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		timers.giveBack(timer)
		timer.Reset(time.Hour)
		select {
		case <-timer.C:
			t.Error("it fires for the next borrower")
		default:
		}
	})
}
