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

// standTime is how long the labels of a service stay in force after a container last had them.
const standTime = 5 * time.Minute

// standing is the set of labels in force for a service. While they are in force, containers of the
// service with other labels are no replicas, however old they are.
type standing struct {
	labels map[string]string
	claim  claim
	seen   time.Time       // when a container last had the labels
	slots  map[string]slot // of the containers that had the labels, by name
}

// slot is the position that a container passes on to the container that replaces it.
type slot struct {
	number int
	seen   time.Time // when the container in it last had the labels
}

// covers reports whether c has the labels.
func (s *standing) covers(c *candidate) bool { return maps.Equal(s.labels, c.ownLabels()) }

// holds reports whether c keeps the labels in force. A container that has ended does so only if
// Compose gave it its name, because Compose gives its replacement the same name.
func (s *standing) holds(c *candidate) bool {
	return s.covers(c) && (!c.ended() || c.number() < math.MaxInt)
}

// note records the containers that keep the labels in force, and drops slots not seen for
// standTime. It reports whether any container keeps them in force.
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

// heir returns the container whose labels replace those in force, or nil. Its name must be that of
// a slot, and its number the lowest of all slots. While other containers keep the labels in force,
// the heir must also serve, and its number must be lower than theirs.
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

// lead returns the member of o whose labels define the route, or nil. It rejects members with other
// labels.
func (a *assembler) lead(o owner, members []candidate) *candidate {
	s := a.standings[o]
	var heir *candidate
	held := s != nil && s.note(members)
	if s != nil {
		heir = s.heir(members, held)
	}
	fresh := s == nil || heir != nil || !held && time.Since(s.seen) >= standTime
	var electors []*candidate // candidates to lead
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
	why := fmt.Errorf("its labels are not those in force for %s: these stay in force until %v after their last container, or until a container of its name replaces it", o, standTime)
	if leader != nil {
		why = fmt.Errorf("its labels are not those of %s, which are in force for %s as long as a container has them", leader.name, o)
	}
	for i := range members {
		if c := &members[i]; c.state != Rejected && !s.covers(c) {
			c.reject(why)
		}
	}
}

// forget drops the standings of services without a container for standTime. Services with
// containers are handled by lead.
func (a *assembler) forget(groups map[owner][]candidate) {
	for o, s := range a.standings {
		if len(groups[o]) == 0 && time.Since(s.seen) >= standTime {
			delete(a.standings, o)
		}
	}
}

// senior returns the elector that leads a service without labels in force, or nil if all electors
// are rejected. It prefers the lowest number in a name that Compose gave, because no two containers
// have the same name at a time. Then it prefers containers that run, and then the oldest.
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

// ended reports whether c has ended. Only a new start would make it run again.
func (c *container) ended() bool {
	return c.state == "exited" || c.state == "dead" || c.state == "removing"
}

// number returns the number in a name that Compose gives, such as shop-a-1. It returns 0 if the
// name is that of the service, and math.MaxInt for all other names.
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

// slot returns the name that a replacement of c will have: the name of c, or the constant part of
// the name of a Swarm task (service.slot.task).
func (c *container) slot() string {
	if at := strings.LastIndexByte(c.name, '.'); at > 0 && c.labels[swarmService] != "" {
		return c.name[:at]
	}
	return c.name
}
