package docker

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// standTime is how long labels stand that no container of their service has any more.
const standTime = 5 * time.Minute

// standing is the labels that count for a service. Containers of the service with other labels are
// no replicas as long as they stand, however old they are.
type standing struct {
	labels map[string]string
	claim  claim
	seen   time.Time       // when there was a container with the labels last
	slots  map[string]slot // of the containers that had the labels, by name
}

// slot is the place of a container that another one takes which replaces it.
type slot struct {
	number int
	seen   time.Time // when a container in it had the labels last
}

// covers reports whether c has the labels.
func (s *standing) covers(c *candidate) bool { return maps.Equal(s.labels, c.ownLabels()) }

// holds reports whether c keeps the labels standing. A container that has ended does so only if
// its name is one that Compose gives: what replaces it will need the name.
func (s *standing) holds(c *candidate) bool {
	return s.covers(c) && (!c.ended() || c.number() < math.MaxInt)
}

// note notes the containers that keep the labels standing, and forgets those of long ago. It
// reports whether there are any.
func (s *standing) note(members []candidate) (held bool) {
	now := time.Now()
	for i := range members {
		if c := &members[i]; s.holds(c) {
			s.slots[c.slot()] = slot{c.number(), now}
			held = true
		}
	}
	if held {
		s.seen = now
	}
	maps.DeleteFunc(s.slots, func(_ string, at slot) bool { return now.Sub(at.seen) >= standTime })
	return held
}

// heir returns the container whose labels replace those that stand, or nil. It is in the place of
// one that had them, and that counted before all others. While there are others with the labels,
// it also has to serve, and its number to come before theirs.
func (s *standing) heir(members []candidate, held bool) *candidate {
	first, holder := math.MaxInt, math.MaxInt
	for _, at := range s.slots {
		first = min(first, at.number)
	}
	for i := range members {
		if c := &members[i]; s.holds(c) {
			holder = min(holder, c.number())
		}
	}
	var heirs []*candidate
	for i := range members {
		c := &members[i]
		_, known := s.slots[c.slot()]
		may := !held || c.state == Serving && c.number() < holder
		if known && may && c.number() == first && !c.ended() && !s.covers(c) {
			heirs = append(heirs, c)
		}
	}
	return senior(heirs)
}

// lead returns the one of the members of o whose labels make the route, or nil, and rejects those
// with other labels.
func (a *assembler) lead(o owner, members []candidate) *candidate {
	s := a.standings[o]
	var heir *candidate
	held := s != nil && s.note(members)
	if s != nil {
		heir = s.heir(members, held)
	}
	fresh := s == nil || heir != nil || !held && time.Since(s.seen) >= standTime
	var electors []*candidate // who may lead
	for i := range members {
		c := &members[i]
		if heir == nil && (fresh || s.covers(c)) || c == heir {
			electors = append(electors, c)
		}
	}
	leader := senior(electors)
	switch {
	case fresh && leader == nil:
		delete(a.standings, o)
		return nil
	case fresh:
		s = &standing{labels: leader.ownLabels(), seen: time.Now(), slots: make(map[string]slot)}
		s.note(members)
		a.standings[o] = s
	}
	if leader != nil {
		s.claim = claimOf(o, leader.reading)
	}
	s.reject(o, members, leader)
	return leader
}

// reject rejects the members of o that do not have the labels. leader may be nil.
func (s *standing) reject(o owner, members []candidate, leader *candidate) {
	why := fmt.Errorf("its labels are not those that count for %s until %v after the last container with them, unless a container of the same name replaces that", o, standTime)
	if leader != nil {
		why = fmt.Errorf("its labels are not those of %s, which count for %s as long as a container has them", leader.name, o)
	}
	for i := range members {
		if c := &members[i]; c.state != Rejected && !s.covers(c) {
			c.reject(why)
		}
	}
}

// forget drops standings of services that have had no container for long. A service with
// containers has been looked at by lead.
func (a *assembler) forget(groups map[owner][]candidate) {
	for o, s := range a.standings {
		if len(groups[o]) == 0 && time.Since(s.seen) >= standTime {
			delete(a.standings, o)
		}
	}
}

// senior returns the one of electors that counts before the others while nothing is known of their
// service: the one with the lowest number in a name that Compose gives, as Docker gives no name
// twice; or else the oldest, if it runs. It returns nil if all were rejected.
func senior(electors []*candidate) *candidate {
	electors = slices.DeleteFunc(slices.Clone(electors), func(c *candidate) bool { return c.state == Rejected })
	if len(electors) == 0 {
		return nil
	}
	rests := func(c *candidate) int {
		if c.runs() && !c.ending {
			return 0
		}
		return 1
	}
	return slices.MinFunc(electors, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.number(), b.number()), rests(a)-rests(b), cmp.Compare(a.created, b.created), cmp.Compare(a.id, b.id))
	})
}

// ended reports whether c has ended, and would have to be started again.
func (c *container) ended() bool {
	return c.state == "exited" || c.state == "dead" || c.state == "removing"
}

// number returns the number in the name of c, if it is one that Compose gives, such as shop-a-1;
// 0 if the name is that of the service; and else a number after all others.
func (c *container) number() int {
	o := c.owner()
	if o.project == "" {
		if c.name == o.service {
			return 0
		}
		return math.MaxInt
	}
	for _, separator := range []string{"-", "_"} {
		digits, is := strings.CutPrefix(c.name, o.project+separator+o.service+separator)
		if n, err := strconv.ParseUint(digits, 10, 31); is && err == nil {
			return int(n)
		}
	}
	return math.MaxInt
}

// slot returns the name that a container which replaces c will have: its own, or for a task of
// Swarm (service.slot.task) the part that stays.
func (c *container) slot() string {
	if at := strings.LastIndexByte(c.name, '.'); at > 0 && c.labels[swarmService] != "" {
		return c.name[:at]
	}
	return c.name
}
