package idgen

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Scheme is a layout together with the epoch its time field counts from: all
// that is needed to compose ids and to read them. Every generator of one
// installation must use the same scheme, and it must not change once ids
// exist; compare fingerprints to find out.
//
// A Scheme is a comparable value, made by NewScheme. The zero Scheme is not
// usable: its Compose fails.
type Scheme struct {
	layout Layout
	epoch  int64 // Unix milliseconds
}

// NewScheme combines a layout and an epoch, which must be a whole millisecond
// and small enough for the last timestamp to fit a time.Time.
func NewScheme(l Layout, epoch time.Time) (Scheme, error) {
	if l.IsZero() {
		return Scheme{}, fmt.Errorf("%w: it has no fields", ErrLayout)
	}
	if epoch.Nanosecond()%int(time.Millisecond) != 0 {
		return Scheme{}, fmt.Errorf("idgen: epoch %s is not a whole millisecond", epoch.Format(time.RFC3339Nano))
	}
	if y := epoch.Year(); y < 0 || y > 9999 {
		return Scheme{}, errors.New("idgen: the year of the epoch is not one from 0 to 9999")
	}
	return Scheme{layout: l, epoch: epoch.UnixMilli()}, nil
}

// Layout returns the layout.
func (s Scheme) Layout() Layout { return s.layout }

// Epoch returns the zero of the time field, in UTC.
func (s Scheme) Epoch() time.Time { return time.UnixMilli(s.epoch).UTC() }

// Exhausts returns the first instant that the time field can no longer hold.
func (s Scheme) Exhausts() time.Time { return s.At(s.layout.mask[FieldTime]).Add(time.Millisecond) }

// Fingerprint is a text that is equal exactly for equal schemes.
func (s Scheme) Fingerprint() string {
	return s.layout.String() + "@" + s.Epoch().Format("2006-01-02T15:04:05.000Z")
}

// Parts are what an id says about itself. Fields that the layout lacks are 0.
type Parts struct {
	Time       time.Time // when it was issued, to the millisecond, in UTC
	Datacenter int64
	Worker     int64
	Rollback   int64
	Sequence   int64
}

// Compose makes the id with these parts; the time is cut to the millisecond.
// See [Layout.Pack] for its errors.
func (s Scheme) Compose(p Parts) (ID, error) {
	return s.layout.Pack(Fields{s.Since(p.Time), p.Datacenter, p.Worker, p.Rollback, p.Sequence})
}

// Decompose reads an id. It fails with ErrRange for ids that this layout
// cannot have made.
func (s Scheme) Decompose(id ID) (Parts, error) {
	f, err := s.layout.Unpack(id)
	if err != nil {
		return Parts{}, err
	}
	return Parts{s.At(f.Time), f.Datacenter, f.Worker, f.Rollback, f.Sequence}, nil
}

// Time returns when an id was issued, without checking anything else about it.
func (s Scheme) Time(id ID) time.Time {
	return s.At(int64(id) >> s.layout.shift[FieldTime])
}

// At converts milliseconds since the epoch to a time in UTC.
func (s Scheme) At(ms int64) time.Time {
	if ms > math.MaxInt64-max(s.epoch, 0) {
		ms = math.MaxInt64 - max(s.epoch, 0)
	}
	return time.UnixMilli(s.epoch + ms).UTC()
}

// Since converts a time to milliseconds since the epoch, rounding down.
func (s Scheme) Since(t time.Time) int64 { return t.UnixMilli() - s.epoch }

// First returns the smallest id that can carry the millisecond of t: ids issued
// before t are below it, those issued at t or later are not. Times outside the
// range of the time field are moved to its ends.
func (s Scheme) First(t time.Time) ID {
	ms := min(max(s.Since(t), 0), s.layout.mask[FieldTime])
	return ID(ms << s.layout.shift[FieldTime])
}
