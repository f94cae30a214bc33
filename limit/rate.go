package limit

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Bounds of a [Rate].
const (
	MaxCount = 1_000_000
	MaxPer   = 24 * time.Hour
)

// Rate says how often something may happen: Count times in every span of Per,
// as one burst or spread over it. So 100/s and 6000/m allow the same in the long
// run, but the second one lets 6000 through at once. The zero value is no limit.
// Rates can be compared with ==.
type Rate struct {
	Count int
	Per   time.Duration
}

// IsZero tells that there is no limit.
func (r Rate) IsZero() bool { return r == Rate{} }

// Valid returns what is wrong with the rate, nil for the zero value.
func (r Rate) Valid() error {
	switch {
	case r.IsZero():
		return nil
	case r.Count < 1 || r.Count > MaxCount:
		return fmt.Errorf("a rate allows 1 to %d events, not %d", MaxCount, r.Count)
	case r.Per < time.Second || r.Per > MaxPer:
		return fmt.Errorf("a rate is per %s to %s, not per %s", time.Second, MaxPer, r.Per)
	case r.Per%time.Second != 0:
		return fmt.Errorf("a rate is per whole seconds, not per %s", r.Per)
	default:
		return nil
	}
}

// Interval is the time after which one more event is allowed. It is rounded up
// to a nanosecond, so that a limit never lets more through than it says.
func (r Rate) Interval() time.Duration {
	if r.Count <= 0 {
		return 0
	}
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

var (
	validRate = regexp.MustCompile(`^([1-9][0-9]{0,6})/([1-9][0-9]{0,4})?([smh])$`)

	errRate = errors.New(`a rate is a number per s, m or h, as in 100/s, 600/m, 5/h, or per several of them, as in 200/10s`)
)

// units of the text form.
var units = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// ParseRate reads the text form: 100/s, 600/m, 5/h, or, for a burst of its own,
// 200/10s. Numbers have neither sign, leading zero nor fraction. The empty text
// is an error; no limit is told by leaving the rate out.
func ParseRate(text string) (Rate, error) {
	part := validRate.FindStringSubmatch(text)
	if part == nil {
		return Rate{}, errRate
	}
	count, err := strconv.Atoi(part[1])
	if err != nil {
		return Rate{}, errRate
	}
	per := 1
	if part[2] != "" {
		if per, err = strconv.Atoi(part[2]); err != nil {
			return Rate{}, errRate
		}
	}
	r := Rate{Count: count, Per: time.Duration(per) * units[part[3]]}
	if err := r.Valid(); err != nil {
		return Rate{}, err
	}
	return r, nil
}

// String returns the shortest text that [ParseRate] reads as this rate, empty
// for the zero value.
func (r Rate) String() string {
	if r.IsZero() {
		return ""
	}
	unit, name := time.Second, "s"
	switch {
	case r.Per%time.Hour == 0:
		unit, name = time.Hour, "h"
	case r.Per%time.Minute == 0:
		unit, name = time.Minute, "m"
	}
	text := strconv.Itoa(r.Count) + "/"
	if n := int64(r.Per / unit); n != 1 {
		text += strconv.FormatInt(n, 10)
	}
	return text + name
}

// MarshalText implements [encoding.TextMarshaler], for JSON.
func (r Rate) MarshalText() ([]byte, error) {
	if err := r.Valid(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler], for JSON and YAML. Unlike
// [ParseRate] it takes the empty text as no limit, which is what MarshalText
// makes of the zero value.
func (r *Rate) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Rate{}
		return nil
	}
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
