package tokens

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// newCache returns a cache for size entries that stay fresh for ttl, on the real clock.
func newCache(t testing.TB, size int, ttl time.Duration) *cache {
	c := new(cache)
	c.open(size, ttl, 0, time.Now)
	t.Cleanup(c.close)
	return c
}

// The number of cached attributes is limited, and those that are read all the time are kept.
func TestGrantsAreBounded(t *testing.T) {
	c := newCache(t, 20, time.Hour)
	first := c.attributes(&Token{Client: "busy"})
	for i := range 1000 {
		c.attributes(&Token{Client: strconv.Itoa(i)})
		if c.attributes(&Token{Client: "busy"}) != first {
			t.Fatalf("after %d others, the grant that is read all the time is another one", i)
		}
	}
	if n := len(c.young.found) + len(c.old.found); n > c.size {
		t.Errorf("%d grants are kept, want at most %d", n, c.size)
	}
}

// The timer does not run while there is nothing to drop, or after close.
func TestGrantsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, 20, time.Second)
		one := c.attributes(&Token{Client: "a"})
		time.Sleep(1500 * time.Millisecond)
		if c.attributes(&Token{Client: "a"}) != one {
			t.Error("it is let go before anybody could read it again")
		}
		time.Sleep(3 * time.Second)
		if runs, kept := c.state(); runs || kept > 0 {
			t.Errorf("runs: %t, and %d are kept though nobody has read them for a while", runs, kept)
		}
		c.attributes(&Token{Client: "a"})
		c.close()
		time.Sleep(3 * time.Second)
		if len(c.young.found) == 0 { // nobody else is left
			t.Error("something runs after the end")
		}
		ended := newCache(t, 20, time.Second)
		ended.close()
		ended.attributes(&Token{Client: "a"})
		if runs, _ := ended.state(); runs {
			t.Error("something begins to run after the end")
		}
	})
}

// state returns whether the timer runs, and how many grants are kept.
func (c *cache) state() (runs bool, kept int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timer != nil, len(c.young.found) + len(c.old.found)
}

// Audiences that join to the same text are distinguished, whenever they were read.
func TestGrantsOfAudiencesThatReadTheSame(t *testing.T) {
	c := newCache(t, 20, time.Hour)
	two := c.attributes(&Token{Client: "a", Audience: []string{"x", "y"}})
	c.rotate()
	if one := c.attributes(&Token{Client: "a", Audience: []string{"x y"}}); one == two {
		t.Error("one audience has the grant of two")
	}
}
