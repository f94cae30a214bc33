package idgen

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"

	"snowgate/internal/base62"
)

// ID is a 63-bit id; the sign bit is always 0. Its most significant field is a timestamp. So ids
// sort by time as numbers, and as text in the fixed-width forms base62, base32 and hex.
//
// An ID is marshaled, in JSON and as a map key, as its 11-character base62 form and never as a JSON
// number: JavaScript loses precision above 2^53. In a database an ID is a BIGINT.
type ID int64

// TextLen is the length of the base62 form.
const TextLen = base62.Width64

// The reasons why a text is not an id. A [ParseError] wraps one of them.
var (
	ErrLength   = errors.New("wrong length")
	ErrAlphabet = errors.New("character outside the alphabet")
	ErrRange    = errors.New("does not fit 63 bits")
)

// ParseError says which text could not be read as an id, in which form, and why.
type ParseError struct {
	Form string // "base62", "decimal", "base32" or "hex"
	Text string // the input, truncated to 32 bytes
	Err  error  // ErrLength, ErrAlphabet or ErrRange
}

func (e *ParseError) Error() string {
	return "idgen: " + strconv.Quote(e.Text) + " is not an id in " + e.Form + ": " + e.Err.Error()
}

// Unwrap returns ErrLength, ErrAlphabet or ErrRange.
func (e *ParseError) Unwrap() error { return e.Err }

func parseError[T string | []byte](form string, text T, err error) error {
	return &ParseError{Form: form, Text: string(text[:min(len(text), 32)]), Err: err}
}

// String returns the base62 form: 11 characters of 0-9A-Za-z, most significant first, zero padded,
// in the sort order of the ids. A negative ID prints as "ID(-n)"; no generator or parser of this
// package returns one.
func (id ID) String() string {
	if id < 0 {
		return "ID(" + strconv.FormatInt(int64(id), 10) + ")"
	}
	var b [TextLen]byte
	base62.Put63(&b, uint64(id))
	return string(b[:])
}

// Append appends the base62 form to b. It allocates only if b must grow.
func (id ID) Append(b []byte) []byte {
	if id < 0 {
		return append(b, id.String()...)
	}
	b = append(b, "00000000000"...)
	base62.Put63((*[TextLen]byte)(b[len(b)-TextLen:]), uint64(id))
	return b
}

// Parse parses the base62 form. It accepts exactly the texts that String returns: 11 characters of
// 0-9A-Za-z with a value below 2^63. Errors are of type *ParseError.
func Parse(text string) (ID, error) { return parse62(text) }

func parse62[T string | []byte](text T) (ID, error) {
	if len(text) != TextLen {
		return 0, parseError("base62", text, ErrLength)
	}
	v, digits, fits := base62.Parse63(text)
	switch {
	case !digits:
		return 0, parseError("base62", text, ErrAlphabet)
	case !fits:
		return 0, parseError("base62", text, ErrRange)
	}
	return ID(v), nil
}

// AppendText implements [encoding.TextAppender] with the base62 form. It fails only for a negative
// ID.
func (id ID) AppendText(b []byte) ([]byte, error) {
	if id < 0 {
		return b, fmt.Errorf("idgen: %v: %w", id, ErrRange)
	}
	return id.Append(b), nil
}

// MarshalText implements [encoding.TextMarshaler] with the base62 form. It fails only for a
// negative ID.
func (id ID) MarshalText() ([]byte, error) { return id.AppendText(make([]byte, 0, TextLen)) }

// UnmarshalText implements [encoding.TextUnmarshaler] with the base62 form.
func (id *ID) UnmarshalText(text []byte) error {
	v, err := parse62(text)
	if err != nil {
		return err
	}
	*id = v
	return nil
}

// Value implements [driver.Valuer]. It returns an int64, for a BIGINT column.
func (id ID) Value() (driver.Value, error) { return int64(id), nil }

// Scan implements [database/sql.Scanner]. It accepts a non-negative int64, or text in the base62
// form. NULL is an error; where NULL may occur, scan into a sql.Null[ID].
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case int64:
		if v < 0 {
			return fmt.Errorf("idgen: cannot scan %d: %w", v, ErrRange)
		}
		*id = ID(v)
		return nil
	case string:
		return id.UnmarshalText([]byte(v))
	case []byte:
		return id.UnmarshalText(v)
	default:
		return fmt.Errorf("idgen: cannot scan %T into an ID", src)
	}
}
