package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"snowgate/internal/problem"
)

// object is a JSON object from a caller. Its methods read and remove one member each. They collect
// faults instead of returning them, so that [object.check] reports all faults at once.
type object struct {
	members map[string]json.RawMessage
	faults  []problem.Fault
}

// readObject reads the body of r.
func readObject(w http.ResponseWriter, r *http.Request) (*object, error) {
	if err := checkJSON(r.Header); err != nil {
		return nil, err
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	return parseObject(body)
}

// readOptional is readObject for requests with an optional body. Without a body it returns an empty
// object.
func readOptional(w http.ResponseWriter, r *http.Request) (*object, error) {
	if len(r.Header.Values("Content-Type")) > 0 {
		return readObject(w, r)
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		return nil, checkJSON(r.Header)
	}
	return &object{}, nil
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	var known *problem.Error
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &tooLarge), errors.As(err, &known):
		return nil, err
	default:
		return nil, problem.New(http.StatusBadRequest, "The request body could not be read.", err)
	}
}

// checkJSON refuses every content type except application/json. A form on the page of another site
// cannot send it.
func checkJSON(header http.Header) error {
	if lines := header.Values("Content-Type"); len(lines) == 1 {
		mediaType, parameters, err := mime.ParseMediaType(lines[0])
		charset, given := parameters["charset"]
		if err == nil && mediaType == "application/json" && (!given || strings.EqualFold(charset, "utf-8")) &&
			header.Get("Content-Encoding") == "" {
			return nil
		}
	}
	refusal := problem.New(http.StatusUnsupportedMediaType, "The request needs a body with Content-Type: application/json, not compressed.", nil)
	refusal.Header = http.Header{"Accept": {"application/json"}} // RFC 9110 §15.5.16
	return refusal
}

// parseObject reads one JSON object. A member that comes twice is a fault (RFC 8259 §4).
func parseObject(text []byte) (*object, error) {
	if !utf8.Valid(text) {
		return nil, problem.New(http.StatusBadRequest, "The body is not UTF-8.", nil)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	members, faults, err := readMembers(in)
	if err == nil {
		if _, extra := in.Token(); !errors.Is(extra, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		// The errors of encoding/json quote at most one character.
		return nil, problem.New(http.StatusBadRequest, fmt.Sprintf("The body is not one JSON object: %v.", err), nil)
	}
	return &object{members: members, faults: faults}, nil
}

func readMembers(in *json.Decoder) (map[string]json.RawMessage, []problem.Fault, error) {
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return nil, nil, errors.New("it does not begin with { and a member")
	}
	members := make(map[string]json.RawMessage)
	var faults []problem.Fault
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return nil, nil, err
		}
		name, _ := token.(string) // all other tokens are errors of Token
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return nil, nil, err
		}
		if _, twice := members[name]; twice {
			faults = append(faults, problem.Fault{Pointer: pointer(name), Detail: "appears twice"})
		}
		members[name] = value
	}
	_, err := in.Token()
	return members, faults, err
}

// pointer returns the JSON pointer (RFC 6901) to a top-level member.
func pointer(name string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// fault records a fault of a member.
func (o *object) fault(name, format string, args ...any) {
	o.faults = append(o.faults, problem.Fault{Pointer: pointer(name), Detail: fmt.Sprintf(format, args...)})
}

// has reports whether the object has an unread member of that name.
func (o *object) has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// take moves the member name into value. It reports whether the member exists and has the right
// type.
func (o *object) take(name, wanted string, value any) bool {
	raw, ok := o.members[name]
	if !ok {
		return false
	}
	delete(o.members, name)
	if string(raw) == "null" || json.Unmarshal(raw, value) != nil {
		o.fault(name, "needs to be %s", wanted)
		return false
	}
	return true
}

// text reads a string.
func (o *object) text(name string) string {
	var value string
	o.take(name, "a string", &value)
	return value
}

// instant reads an instant, or the zero time if the member is missing.
func (o *object) instant(name string) time.Time {
	const wanted = "an instant like 2026-01-31T12:00:00Z (RFC 3339)"
	var value string
	if !o.take(name, wanted, &value) {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		o.fault(name, "needs to be %s", wanted)
		return time.Time{}
	}
	return at
}

// maxSeconds limits a number of seconds to a hundred years.
const maxSeconds = 100 * 365 * 24 * 60 * 60

// seconds reads a whole number of seconds, at least least.
func (o *object) seconds(name string, least int64) (d time.Duration, given bool) {
	var value json.Number
	wanted := fmt.Sprintf("a whole number of seconds, %d or more", least)
	if raw := o.members[name]; len(raw) > 0 && raw[0] == '"' { // a json.Number also accepts strings
		delete(o.members, name)
		o.fault(name, "needs to be %s", wanted)
		return 0, false
	}
	if !o.take(name, wanted, &value) {
		return 0, false
	}
	n, err := strconv.ParseInt(value.String(), 10, 64)
	if err != nil || n < least || n > maxSeconds {
		o.fault(name, "needs to be %s", wanted)
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}

// number reads a whole number.
func (o *object) number(name string) (n int64, given bool) {
	given = o.take(name, "a whole number", &n)
	return n, given
}

// maxReason limits the reason for a change, in bytes.
const maxReason = 256

// reason reads the reason for a change. The log shows the reason, so it must be one line and hold
// no secret.
func (o *object) reason() string {
	text := o.text("reason")
	switch {
	case len(text) > maxReason:
		o.fault("reason", "has more than %d bytes", maxReason)
	case strings.ContainsFunc(text, unicode.IsControl):
		o.fault("reason", "holds a control character")
	case looksSecret(text):
		o.fault("reason", looksSecretText)
	default:
		return text
	}
	return ""
}

const looksSecretText = "holds what looks like a token or a client secret; it would be logged"

// looksSecret reports whether text may hold a token or a client secret.
func looksSecret(text string) bool {
	return strings.Contains(text, "sgs_") || strings.Contains(text, "sgt_")
}

// check returns all faults of the object, including unread members, or nil.
func (o *object) check() error {
	for name := range o.members {
		o.fault(name, "is unknown here")
	}
	o.members = nil
	return invalid(o.faults)
}

// invalid returns the response for a document with faults, or nil if there are none.
func invalid(faults []problem.Fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b problem.Fault) int { return strings.Compare(a.Pointer, b.Pointer) })
	return &problem.Error{
		Status: http.StatusUnprocessableEntity,
		Detail: "The document has faults.",
		Faults: faults,
	}
}
