package tokens

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// However many grants there are, a bounded number of them is kept, among them one that is read
// all the time.
func TestGrantsAreBounded(t *testing.T) {
	gs := grants{while: time.Hour, most: 10}
	defer gs.close()
	first := gs.of(&Token{Client: "busy"})
	for i := range 1000 {
		gs.of(&Token{Client: strconv.Itoa(i)})
		if gs.of(&Token{Client: "busy"}) != first {
			t.Fatalf("after %d others, the grant that is read all the time is another one", i)
		}
	}
	if n := len(gs.young) + len(gs.old); n > 2*gs.most {
		t.Errorf("%d grants are kept, want at most %d", n, 2*gs.most)
	}
}

// Nothing runs when there is nothing to let go, and after the end.
func TestGrantsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := grants{while: time.Second, most: 10}
		one := gs.of(&Token{Client: "a"})
		time.Sleep(1500 * time.Millisecond)
		if gs.of(&Token{Client: "a"}) != one {
			t.Error("it is let go before anybody could read it again")
		}
		time.Sleep(3 * time.Second)
		if runs, kept := gs.state(); runs || kept > 0 {
			t.Errorf("runs: %t, and %d are kept though nobody has read them for a while", runs, kept)
		}
		gs.of(&Token{Client: "a"})
		gs.close()
		time.Sleep(3 * time.Second)
		if len(gs.young) == 0 { // nobody else is left
			t.Error("something runs after the end")
		}
		ended := grants{while: time.Second, most: 10}
		ended.close()
		ended.of(&Token{Client: "a"})
		if runs, _ := ended.state(); runs {
			t.Error("something begins to run after the end")
		}
	})
}

// state returns whether the timer runs, and how many grants are kept.
func (gs *grants) state() (runs bool, kept int) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.timer != nil, len(gs.young) + len(gs.old)
}

// Audiences that read the same are told apart, whenever they were read.
func TestGrantsOfAudiencesThatReadTheSame(t *testing.T) {
	gs := grants{while: time.Hour, most: 10}
	defer gs.close()
	two := gs.of(&Token{Client: "a", Audience: []string{"x", "y"}})
	gs.turn()
	if one := gs.of(&Token{Client: "a", Audience: []string{"x y"}}); one == two {
		t.Error("one audience has the grant of two")
	}
}
