package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"snowgate/internal/scope"
	"snowgate/limit"
)

// maxDocument is the maximum size of a document in bytes, far more than one within the limits
// needs.
const maxDocument = 512 << 10

// DecodeDocument decodes the JSON form of a document. maxTTL is the maximum token lifetime; 0: no
// maximum. Decoding is strict: a member that is unknown or given twice is a fault. The error is a
// [DocumentError] that lists all faults.
//
// client_id is required. grant_types and token_endpoint_auth_method are optional (RFC 7591 §2), but
// must have the values that the gateway supports.
func DecodeDocument(text []byte, maxTTL time.Duration) (Document, error) {
	d := &documentDecoder{maxTTL: maxTTL}
	members, err := readObject(text)
	if err != nil {
		return Document{}, DocumentError{{Detail: err.Error()}}
	}
	seen := map[string]bool{}
	for _, m := range members {
		switch {
		case seen[m.name]:
			d.fault(m.name, "is given twice")
		default:
			d.member(m)
		}
		seen[m.name] = true
	}
	if !seen["client_id"] {
		d.fault("client_id", "is missing")
	}
	if len(d.faults) > 0 {
		return Document{}, d.faults
	}
	return d.document, nil
}

// documentDecoder decodes a document and collects its faults.
type documentDecoder struct {
	document Document
	maxTTL   time.Duration
	faults   DocumentError
}

// fault records a fault of a member. The text completes a sentence whose subject is the member.
func (d *documentDecoder) fault(name, format string, args ...any) {
	d.faults = append(d.faults, DocumentFault{Pointer: pointer(name), Detail: fmt.Sprintf(format, args...)})
}

// faultAt records a fault of one element of a member.
func (d *documentDecoder) faultAt(name string, i int, format string, args ...any) {
	d.fault(name, format, args...)
	d.faults[len(d.faults)-1].Pointer += fmt.Sprintf("/%d", i)
}

// pointer returns the JSON pointer to a member (RFC 6901 §3). It truncates a long name, and redacts
// one that may contain a secret, because callers can send any name.
func pointer(name string) string {
	if looksSecret(name) {
		return "/" + redacted
	}
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "…"
	}
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// readers decodes the members that a caller may set.
var readers = map[string]func(d *documentDecoder, name string, value json.RawMessage){
	"client_id":                  (*documentDecoder).id,
	"client_name":                (*documentDecoder).name,
	"scope":                      (*documentDecoder).scope,
	"grant_types":                (*documentDecoder).grantTypes,
	"token_endpoint_auth_method": (*documentDecoder).authMethod,
	"audiences":                  (*documentDecoder).audiences,
	"token_ttl":                  (*documentDecoder).tokenTTL,
	"rate":                       (*documentDecoder).rate,
	"introspect":                 (*documentDecoder).introspect,
	"disabled":                   (*documentDecoder).disabled,
}

func (d *documentDecoder) member(m member) {
	read, known := readers[m.name]
	switch {
	case known:
		read(d, m.name, m.value)
	case isServerMember(m.name):
		d.fault(m.name, "is said by the server and cannot be stated")
	default:
		d.fault(m.name, "is not known")
	}
}

func (d *documentDecoder) id(name string, value json.RawMessage) {
	text, ok := d.text(name, value)
	if ok && !ValidID(text) {
		d.fault(name, "is not 1 to %d characters of A-Za-z0-9._~-, and neither . nor ..", MaxIDLen)
		return
	}
	d.document.ID = text
}

func (d *documentDecoder) name(name string, value json.RawMessage) {
	text, ok := d.text(name, value)
	if ok && text != "" && !ValidName(text) {
		d.fault(name, "is not %s", NameWanted)
		return
	}
	d.document.Name = text
}

func (d *documentDecoder) scope(name string, value json.RawMessage) {
	text, ok := d.text(name, value)
	if !ok {
		return
	}
	list, err := scope.Parse(text)
	switch {
	case len(text) > MaxScopeLen:
		d.fault(name, "has more than %d characters", MaxScopeLen)
	case err != nil:
		d.fault(name, "is not a list of scope-tokens separated by single spaces (RFC 6749 §3.3)")
	case strings.Count(string(list), " ")+1 > MaxScopes:
		d.fault(name, "has more than %d scope-tokens", MaxScopes)
	default:
		d.document.Scopes = list
	}
}

func (d *documentDecoder) grantTypes(name string, value json.RawMessage) {
	list, ok := d.texts(name, value)
	if ok && !slices.Equal(list, []string{grantType}) {
		d.fault(name, "is not [%q], the only grant type there is", grantType)
	}
}

func (d *documentDecoder) authMethod(name string, value json.RawMessage) {
	text, ok := d.text(name, value)
	if ok && text != authMethod {
		d.fault(name, "is not %q; client_secret_post works for every client as well", authMethod)
	}
}

func (d *documentDecoder) audiences(name string, value json.RawMessage) {
	list, ok := d.texts(name, value)
	if !ok {
		return
	}
	if len(list) > MaxAudiences {
		d.fault(name, "has more than %d elements", MaxAudiences)
		return
	}
	for i, audience := range list {
		switch {
		case looksSecret(audience):
			d.faultAt(name, i, "holds a secret or a token")
		case !ValidAudience(audience):
			d.faultAt(name, i, "is not an absolute URI without a fragment (RFC 8707 §2)")
		case slices.Contains(list[:i], audience):
			d.faultAt(name, i, "is listed twice")
		}
	}
	d.document.Audiences = list
}

func (d *documentDecoder) tokenTTL(name string, value json.RawMessage) {
	var seconds int64
	if err := json.Unmarshal(value, &seconds); err != nil || isNull(value) {
		d.fault(name, "is not a whole number of seconds")
		return
	}
	// Compare seconds, because the product could overflow.
	longest := int64(d.maxTTL / time.Second)
	if d.maxTTL == 0 {
		longest = int64(1<<63-1) / int64(time.Second)
	}
	switch {
	case seconds < 0:
		d.fault(name, "is negative; 0 is the default of the gateway")
	case seconds > longest:
		d.fault(name, "is more than %d seconds, the longest lifetime that is configured", longest)
	default:
		d.document.TokenTTL = time.Duration(seconds) * time.Second
	}
}

func (d *documentDecoder) rate(name string, value json.RawMessage) {
	text, ok := d.text(name, value)
	if !ok || text == "" {
		return
	}
	rate, err := limit.ParseRate(text)
	if err != nil {
		d.fault(name, "is not valid: %v", err)
	}
	d.document.Rate = rate
}

func (d *documentDecoder) introspect(name string, value json.RawMessage) {
	text, ok := d.text(name, value)
	if !ok {
		return
	}
	policy, err := ParseIntrospection(text)
	if err != nil {
		d.fault(name, "%v", err)
	}
	d.document.Introspect = policy
}

func (d *documentDecoder) disabled(name string, value json.RawMessage) {
	if err := json.Unmarshal(value, &d.document.Disabled); err != nil || isNull(value) {
		d.fault(name, "is neither true nor false")
	}
}

// text decodes a string. A string that may contain a secret is a fault.
func (d *documentDecoder) text(name string, value json.RawMessage) (text string, ok bool) {
	switch err := json.Unmarshal(value, &text); {
	case err != nil || isNull(value):
		d.fault(name, "is not a string")
	case looksSecret(text):
		d.fault(name, "holds a secret or a token")
	default:
		return text, true
	}
	return "", false
}

// texts decodes an array of strings.
func (d *documentDecoder) texts(name string, value json.RawMessage) (list []string, ok bool) {
	var elements []*string // null in an array would become an empty string
	if err := json.Unmarshal(value, &elements); err != nil || isNull(value) || slices.Contains(elements, nil) {
		d.fault(name, "is not an array of strings")
		return nil, false
	}
	for _, e := range elements {
		list = append(list, *e)
	}
	return list, true
}

// isNull reports whether value is null, which encoding/json accepts for every type.
func isNull(value json.RawMessage) bool { return string(value) == "null" }

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

var errSurrogate = errors.New("holds a character that does not exist (U+FFFD or half a surrogate pair)")

// readObject decodes text as one JSON object and returns its members in order. It refuses invalid
// UTF-8 and unpaired surrogates. encoding/json replaces them silently, which could make different
// names equal.
func readObject(text []byte) ([]member, error) {
	switch {
	case len(text) > maxDocument:
		return nil, fmt.Errorf("has more than %d bytes", maxDocument)
	case !utf8.Valid(text):
		return nil, errors.New("is not UTF-8")
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if token, err := in.Token(); err != nil || token != json.Delim('{') {
		return nil, notObject(err)
	}
	var members []member
	for in.More() {
		var m member
		name, err := in.Token()
		if err == nil {
			m.name, _ = name.(string) // inside an object, a name follows if More is true
			err = in.Decode(&m.value)
		}
		if err != nil {
			return nil, notObject(err)
		}
		if strings.ContainsRune(m.name, utf8.RuneError) || hasReplacement(m.value) {
			return nil, errSurrogate
		}
		members = append(members, m)
	}
	if _, err := in.Token(); err != nil { // the closing brace
		return nil, notObject(err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("goes on after the object")
	}
	return members, nil
}

// notObject returns the error for text that is not a JSON object. It does not contain the text;
// encoding/json quotes one character at most.
func notObject(err error) error {
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return errors.New("is not a JSON object")
	case errors.As(err, &syntax):
		return fmt.Errorf("is not JSON: %w at byte %d", err, syntax.Offset)
	default:
		return errors.New("is not JSON: it ends too early")
	}
}

// hasReplacement reports whether a string in value contains the replacement character once it is
// decoded.
func hasReplacement(value json.RawMessage) bool {
	if bytes.ContainsRune(value, utf8.RuneError) {
		return true
	}
	if !bytes.Contains(value, []byte(`\u`)) {
		return false
	}
	var read any
	if json.Unmarshal(value, &read) != nil {
		return true
	}
	again, err := json.Marshal(read)
	return err != nil || bytes.ContainsRune(again, utf8.RuneError) || bytes.Contains(again, []byte(`\ufffd`))
}
