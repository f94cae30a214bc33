package tokens

import (
	"sync"
	"time"

	"snowgate/idgen"
)

const (
	// goneSlots is how many ids without a record are remembered, at most.
	goneSlots = 4096
	// goneLife is for how long, at most: a store that was restored from a backup may have the
	// record again.
	goneLife = 5 * time.Second
)

// gone remembers the ids for which the store had no record a moment ago, so that a program that
// shows the same ended token again and again costs the store one read in [goneLife]. Only tokens
// whose tag was verified come here, and the record of such a token was written before anybody
// could show it, so an id does not come to have a record later. One id takes the place of another
// that happens to have the same slot. The zero value remembers none; it is safe for concurrent use.
type gone struct {
	mu    sync.Mutex
	slots [goneSlots]goneID
}

type goneID struct {
	id idgen.ID
	at time.Time // when the store was asked
}

func (g *gone) slot(id idgen.ID) *goneID {
	const spread = 0x9E3779B97F4A7C15 // 2^64 by the golden ratio: neighbouring ids fall far apart
	return &g.slots[uint64(id)*spread>>(64-12)]
}

// add remembers that the store, asked at an instant, had no record of id.
func (g *gone) add(id idgen.ID, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*g.slot(id) = goneID{id, at}
}

// has reports whether the store was found to have no record of id within life before now.
func (g *gone) has(id idgen.ID, now time.Time, life time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.slot(id)
	return one.id == id && now.Sub(one.at) < min(life, goneLife)
}
