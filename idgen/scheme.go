package idgen

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Scheme is a layout with the epoch of its time field. It composes ids and reads them. Every
// generator of an installation must use the same scheme, and the scheme must not change once ids
// exist. Two schemes are equal if their fingerprints are.
//
// A Scheme is a comparable value, made by NewScheme. The zero Scheme cannot be used: its Compose
// fails.
type Scheme struct {
	layout Layout
	epoch  int64 // Unix milliseconds
}

// NewScheme combines a layout and an epoch. The epoch must be a whole millisecond, and its year
// must be from 0 to 9999, so that the last timestamp fits a time.Time.
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

// Fingerprint returns a text that identifies the scheme: equal texts mean equal schemes.
func (s Scheme) Fingerprint() string {
	return s.layout.String() + "@" + s.Epoch().Format("2006-01-02T15:04:05.000Z")
}

// Parts holds the content of an id. Fields that the layout does not have are 0.
type Parts struct {
	Time       time.Time // when it was issued, to the millisecond, in UTC
	Datacenter int64
	Worker     int64
	Rollback   int64
	Sequence   int64
}

// Compose returns the id with these parts. The time is truncated to the millisecond. See
// [Layout.Pack] for the errors.
func (s Scheme) Compose(p Parts) (ID, error) {
	return s.layout.Pack(Fields{s.Since(p.Time), p.Datacenter, p.Worker, p.Rollback, p.Sequence})
}

// Decompose returns the parts of an id. It fails with ErrRange for ids that this layout cannot
// produce.
func (s Scheme) Decompose(id ID) (Parts, error) {
	f, err := s.layout.Unpack(id)
	if err != nil {
		return Parts{}, err
	}
	return Parts{s.At(f.Time), f.Datacenter, f.Worker, f.Rollback, f.Sequence}, nil
}

// Time returns when an id was issued. It checks nothing else about the id.
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

// First returns the smallest id with the millisecond of t. Ids issued before t are smaller, ids
// issued at t or later are not. Times outside the range of the time field become its first or last
// millisecond.
func (s Scheme) First(t time.Time) ID {
	ms := min(max(s.Since(t), 0), s.layout.mask[FieldTime])
	return ID(ms << s.layout.shift[FieldTime])
}
