package tokens

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
)

// entryOf returns an entry that differs from those of other ids, with attributes of the client.
func (c *cache) entryOf(id idgen.ID, client string) *entry {
	return &entry{c.attributes(&Token{Client: client}), facts{
		digest: digestOf(id), asked: time.Since(c.opened), expires: time.Now().Add(time.Hour).UnixMilli(),
	}}
}

// digestOf is the digest of entryOf.
func digestOf(id idgen.ID) Digest { return Digest{byte(id), byte(id >> 8), byte(id >> 16)} }

// holds reports whether id is cached, and fails the test if the entry is that of another id.
func (c *cache) holds(t *testing.T, id idgen.ID, client string) bool {
	t.Helper()
	var e entry
	if !c.get(id, &e) {
		return false
	}
	if e.digest != digestOf(id) || e.attributes.client != client {
		t.Fatalf("the entry of %d is %+v, of client %q, want that of %q", id, e, e.attributes.client, client)
	}
	return true
}

// TestCacheKeepsTheLastHalf: the cache never has more entries than its size, and always has the
// last half of those that were added.
func TestCacheKeepsTheLastHalf(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 5, 10, 99, 100} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			c := newCache(t, size, time.Hour)
			client := func(id int) string { return strconv.Itoa(id % 7) }
			for id := range 5 * size {
				c.put(idgen.ID(id), c.entryOf(idgen.ID(id), client(id)))
				if n := c.len(); n > size || n < min(id+1, (size+1)/2) {
					t.Fatalf("%d entries after %d, want at most %d, and the last half", n, id+1, size)
				}
				for last := max(0, id-(size-1)/2); last <= id; last++ {
					if !c.holds(t, idgen.ID(last), client(last)) {
						t.Fatalf("after %d, that of %d is gone", id, last)
					}
				}
			}
		})
	}
}

// TestCacheHoldsItsSize: the cache keeps as many entries as its size if no others are added.
func TestCacheHoldsItsSize(t *testing.T) {
	const size = 1001
	c := newCache(t, size, time.Hour)
	for range 3 {
		for id := range idgen.ID(size) {
			if !c.holds(t, id, "a") {
				c.put(id, c.entryOf(id, "a"))
			}
		}
	}
	for id := range idgen.ID(size) {
		if !c.holds(t, id, "a") {
			t.Fatalf("%d is gone", id)
		}
	}
}

// TestCachePutsAgain: a token that is read again has one entry, the latest.
func TestCachePutsAgain(t *testing.T) {
	c := newCache(t, 10, time.Hour)
	for _, client := range []string{"a", "a", "b"} { // the same grant, another one
		for _, turn := range []bool{false, true, false} {
			if turn {
				c.rotate()
			}
			e := c.entryOf(1, client)
			e.epoch = uint32(time.Since(c.opened))
			c.put(1, e)
			var got entry
			if !c.get(1, &got) || got != *e || c.len() != 1 {
				t.Errorf("%+v of %d entries, want %+v alone", got, c.len(), *e)
			}
		}
	}
	if c.drop(1); c.len() != 0 {
		t.Errorf("%d entries when the only one was dropped", c.len())
	}
}

// TestGrantsOfEntriesAreBounded: also if a token is read with another grant every time, and
// if those are found by the same key.
func TestGrantsOfEntriesAreBounded(t *testing.T) {
	for name, audience := range map[string]func(i int) []string{
		"none alike": func(i int) []string { return []string{strconv.Itoa(i)} },
		"read alike": func(i int) []string { return [][]string{{"x", "y"}, {"x y"}}[i%2] },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, 20, time.Hour)
			for i := range 1000 {
				e := c.entryOf(1, "a")
				e.attributes = c.attributes(&Token{Client: "a", Audience: audience(i)})
				c.put(1, e)
				var got entry
				if !c.get(1, &got) || got != *e {
					t.Fatalf("%+v, want %+v", got, *e)
				}
				if n := len(c.young.attributes) + len(c.old.attributes); n > c.size {
					t.Fatalf("%d grants are kept for one entry", n)
				}
			}
		})
	}
}

// TestCacheLetsGo: an entry stays for as long as it is useful, and not much longer, whatever is
// added after it.
func TestCacheLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(cache)
		c.open(1000, 2*time.Second, 3*time.Second, time.Now)
		defer c.close()
		for n := range 10 { // at different distances from a turn
			id := idgen.ID(n)
			c.put(id, c.entryOf(id, "a"))
			begun := time.Now()
			time.Sleep(5*time.Second - time.Nanosecond)
			if !c.holds(t, id, "a") {
				t.Errorf("it is gone before %s", time.Since(begun))
			}
			time.Sleep(5*time.Second + time.Nanosecond + time.Duration(n)*100*time.Millisecond)
			synctest.Wait()
			var e entry
			if c.get(id, &e) {
				t.Errorf("it is there after %s", time.Since(begun))
			}
		}
		late := c.entryOf(1, "a")
		time.Sleep(time.Minute) // its grant is not found any more
		c.put(1, late)
		time.Sleep(time.Minute)
		if runs, kept := c.state(); runs || kept > 0 || c.len() > 0 {
			t.Errorf("runs: %t, and %d grants and %d entries are kept", runs, kept, c.len())
		}
	})
}

// TestCacheKeepsNothingExpired: the cache keeps no expired entry, and none at all when it is off.
func TestCacheKeepsNothingExpired(t *testing.T) {
	c := newCache(t, 10, time.Hour)
	e := c.entryOf(1, "a")
	e.expires = time.Now().UnixMilli()
	if c.put(1, e); c.len() != 0 {
		t.Error("a token that has expired is kept")
	}
	for _, off := range []*cache{new(cache), newCache(t, 0, time.Hour), newCache(t, 10, 0), newCache(t, -1, time.Hour), newCache(t, 10, -1)} {
		off.put(1, off.entryOf(1, "a"))
		var got entry
		if off.drop(2); off.get(1, &got) || off.len() != 0 || off.timer != nil {
			t.Errorf("a cache that is off holds %d entries", off.len())
		}
	}
}

// FuzzCache compares the cache with a map of everything: what it holds is what was put last,
// and is not more than there is room for.
func FuzzCache(f *testing.F) {
	f.Add(int8(3), []byte{1, 2, 3, 4, 5, 1, 2, 3, 0x41, 0x81, 0xc0, 1})
	f.Fuzz(func(t *testing.T, room int8, steps []byte) {
		size := max(int(room), 1)
		c := newCache(t, size, time.Hour)
		all := make(map[idgen.ID]string)
		for n, step := range steps {
			id := idgen.ID(step & 0x3f)
			switch step >> 6 {
			case 0, 1:
				client := fmt.Sprint(n % 5)
				c.put(id, c.entryOf(id, client))
				if all[id] = client; !c.holds(t, id, client) {
					t.Fatalf("%d was put and is not there", id)
				}
			case 2:
				c.drop(id)
				delete(all, id)
			case 3:
				c.rotate()
			}
			count := 0
			for id := range idgen.ID(0x40) {
				client, put := all[id]
				if c.holds(t, id, client) {
					if count++; !put {
						t.Fatalf("%d was dropped and is there", id)
					}
				}
			}
			if count != c.len() || count > size {
				t.Fatalf("%d entries, len says %d, the size is %d", count, c.len(), size)
			}
		}
	})
}

// BenchmarkCacheCollect is a collection over a million tokens of a thousand clients.
func BenchmarkCacheCollect(b *testing.B) {
	c := newCache(b, 2_000_000, time.Hour)
	for range 1_000_000 {
		id := idgen.ID(rand.Int64())
		c.put(id, c.entryOf(id, strconv.Itoa(int(id%1000))))
	}
	for b.Loop() {
		runtime.GC()
	}
	runtime.KeepAlive(c)
}
