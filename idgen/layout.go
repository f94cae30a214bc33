package idgen

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Field identifies one part of an id.
type Field uint8

// The fields a layout may have.
const (
	FieldTime       Field = iota // milliseconds since the epoch; always the first field
	FieldDatacenter              // upper part of a split worker number
	FieldWorker                  // worker number
	FieldRollback                // how often the clock stepped back; see the Count policy
	FieldSequence                // ids within one millisecond
	fieldCount
)

var fieldNames = [fieldCount]string{"time", "datacenter", "worker", "rollback", "sequence"}

// String returns the field's name in a layout text.
func (f Field) String() string {
	if f < fieldCount {
		return fieldNames[f]
	}
	return "Field(" + strconv.Itoa(int(f)) + ")"
}

// ErrLayout is wrapped by every error about an invalid layout.
var ErrLayout = errors.New("idgen: invalid layout")

// Layout says how many bits of an id each field has, and where. The last field uses the lowest
// bits; bits above the first field are always 0. [ParseLayout] computes masks and shifts once. A
// Layout is a comparable value. The zero Layout has no fields and cannot be used.
type Layout struct {
	order [fieldCount]Field // high to low
	count uint8             // how many of order are in use
	bits  [fieldCount]uint8 // width by field, 0 if absent
	shift [fieldCount]uint8
	mask  [fieldCount]int64 // before shifting; also the largest value of the field
}

// Ready-made layouts. A to E are those of the five systems of docs/reference/ids.md.
var (
	LayoutA = mustLayout("time:41,worker:10,sequence:12")
	LayoutB = mustLayout("time:41,datacenter:5,worker:5,sequence:12")
	LayoutC = mustLayout("time:41,datacenter:2,worker:5,sequence:12,rollback:3")
	LayoutD = mustLayout("time:41,datacenter:3,worker:5,rollback:2,sequence:12")
	LayoutE = LayoutA

	// LayoutDefault is the layout of system A.
	LayoutDefault = LayoutA
	// LayoutWide gives 262 144 ids per millisecond to each of 16 workers.
	LayoutWide = mustLayout("time:41,worker:4,sequence:18")
	// LayoutJSSafe keeps ids below 2^53, so that they are exact as JavaScript numbers. It allows 32
	// workers and 128 ids per millisecond.
	LayoutJSSafe = mustLayout("time:41,worker:5,sequence:7")
)

func mustLayout(text string) Layout {
	l, err := ParseLayout(text)
	if err != nil {
		panic(err)
	}
	return l
}

// ParseLayout parses the fields from high to low, as in "time:41,worker:10,sequence:12". The names
// are time, datacenter, worker, rollback and sequence, each at most once. time must come first;
// time and sequence are required. Each width is at least 1, and the widths sum to at most 63.
// ParseLayout reports all faults in one error, which wraps ErrLayout.
func ParseLayout(text string) (Layout, error) {
	var l Layout
	var faults []error
	for part := range strings.SplitSeq(text, ",") {
		if err := l.add(part); err != nil {
			faults = append(faults, err)
		}
	}
	if faults == nil {
		faults = l.finish()
	}
	if faults != nil {
		return Layout{}, fmt.Errorf("%w %q: %w", ErrLayout, text, errors.Join(faults...))
	}
	return l, nil
}

func (l *Layout) add(part string) error {
	name, digits, _ := strings.Cut(part, ":")
	field := fieldCount
	for f, n := range fieldNames {
		if n == name {
			field = Field(f)
		}
	}
	if field == fieldCount {
		return fmt.Errorf("unknown field %q (known: %s)", name, strings.Join(fieldNames[:], ", "))
	}
	if l.bits[field] != 0 {
		return fmt.Errorf("field %s given twice", name)
	}
	width, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || width < 1 || width > 63 || digits[0] == '0' {
		return fmt.Errorf("width %q of field %s is not a number from 1 to 63", digits, name)
	}
	l.bits[field] = uint8(width)
	l.order[l.count] = field
	l.count++
	return nil
}

// finish checks the fields against each other and computes masks and shifts.
func (l *Layout) finish() (faults []error) {
	if l.order[0] != FieldTime {
		faults = append(faults, errors.New("time must be the first field"))
	}
	if l.bits[FieldSequence] == 0 {
		faults = append(faults, errors.New("field sequence is missing"))
	}
	sum := 0
	for i := int(l.count) - 1; i >= 0; i-- {
		f := l.order[i]
		l.shift[f] = uint8(sum)
		l.mask[f] = 1<<l.bits[f] - 1
		sum += int(l.bits[f])
	}
	if sum > 63 {
		faults = append(faults, fmt.Errorf("widths sum to %d, more than 63", sum))
	}
	return faults
}

// IsZero reports whether l is the zero Layout.
func (l Layout) IsZero() bool { return l.count == 0 }

// Bits returns the width of f, or 0 if the layout does not have it.
func (l Layout) Bits(f Field) int { return int(l.bits[f]) }

// Max returns the largest value of f, or 0 if the layout does not have it.
func (l Layout) Max(f Field) int64 { return l.mask[f] }

// String returns the text that ParseLayout parses.
func (l Layout) String() string {
	b, _ := l.AppendText(nil)
	return string(b)
}

// AppendText implements [encoding.TextAppender].
func (l Layout) AppendText(b []byte) ([]byte, error) {
	for i, f := range l.order[:l.count] {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.String()...)
		b = append(b, ':')
		b = strconv.AppendUint(b, uint64(l.bits[f]), 10)
	}
	return b, nil
}

// MarshalText implements [encoding.TextMarshaler].
func (l Layout) MarshalText() ([]byte, error) { return l.AppendText(nil) }

// UnmarshalText implements [encoding.TextUnmarshaler]; see ParseLayout.
func (l *Layout) UnmarshalText(text []byte) error {
	v, err := ParseLayout(string(text))
	if err == nil {
		*l = v
	}
	return err
}

// Fields holds the values of an id's fields. Time is in milliseconds since the epoch of the scheme.
// Fields that the layout does not have are 0.
type Fields struct {
	Time, Datacenter, Worker, Rollback, Sequence int64
}

// Pack composes an id from f. A value that is negative or too wide for its field is an error and
// never spills into the neighbouring field. The error is ErrTimeExhausted or ErrBeforeEpoch for the
// time, and ErrFieldRange for the others.
func (l Layout) Pack(f Fields) (ID, error) {
	switch {
	case l.IsZero():
		return 0, fmt.Errorf("%w: it has no fields", ErrLayout)
	case f.Time < 0:
		return 0, fmt.Errorf("%w: time %d ms", ErrBeforeEpoch, f.Time)
	case f.Time > l.mask[FieldTime]:
		return 0, fmt.Errorf("%w: %d ms in %d bits", ErrTimeExhausted, f.Time, l.bits[FieldTime])
	}
	values := [fieldCount]int64{f.Time, f.Datacenter, f.Worker, f.Rollback, f.Sequence}
	var id int64
	for field, v := range values {
		if err := l.check(Field(field), v); err != nil {
			return 0, err
		}
		id |= v << l.shift[field]
	}
	return ID(id), nil
}

func (l Layout) check(f Field, v int64) error {
	if v < 0 || v > l.mask[f] {
		return fmt.Errorf("%w: %s %d, largest is %d", ErrFieldRange, f, v, l.mask[f])
	}
	return nil
}

// Unpack is the inverse of Pack. It fails with ErrRange for ids that this layout cannot produce:
// negative ids, and ids with a bit set above the first field.
func (l Layout) Unpack(id ID) (Fields, error) {
	if id < 0 || int64(id)>>l.shift[FieldTime] > l.mask[FieldTime] {
		return Fields{}, fmt.Errorf("idgen: id %d in layout %q: %w", int64(id), l, ErrRange)
	}
	return Fields{
		Time:       l.get(id, FieldTime),
		Datacenter: l.get(id, FieldDatacenter),
		Worker:     l.get(id, FieldWorker),
		Rollback:   l.get(id, FieldRollback),
		Sequence:   l.get(id, FieldSequence),
	}, nil
}

func (l *Layout) get(id ID, f Field) int64 { return int64(id) >> l.shift[f] & l.mask[f] }

// CheckWorker returns an error that wraps ErrFieldRange if the worker or datacenter number does not
// fit its field.
func (l Layout) CheckWorker(w Worker) error {
	return errors.Join(l.check(FieldDatacenter, w.Datacenter), l.check(FieldWorker, w.Number))
}

// Workers returns the number of worker numbers over all datacenters.
func (l Layout) Workers() int64 { return (l.mask[FieldDatacenter] + 1) * (l.mask[FieldWorker] + 1) }

// PerMillisecond returns how many ids one worker can issue per millisecond. With exact timestamps,
// a thousand times this is the limit per second.
func (l Layout) PerMillisecond() int64 { return l.mask[FieldSequence] + 1 }

// Worker splits a number from 0 to Workers()-1 into datacenter and worker.
func (l Layout) Worker(n int64) Worker {
	return Worker{Datacenter: n >> l.bits[FieldWorker], Number: n & l.mask[FieldWorker]}
}

// WorkerIndex is the inverse of Worker.
func (l Layout) WorkerIndex(w Worker) int64 {
	return w.Datacenter<<l.bits[FieldWorker] | w.Number
}
