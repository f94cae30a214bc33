package redisclients

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"snowgate/clients"
	"snowgate/internal/scope"
	"snowgate/limit"
)

// recordVersion is the version of the stored form.
const recordVersion = 1

// maxExact is the greatest integer up to which numbers in Lua are exact.
const maxExact = 1 << 53

// record is the stored form of a client. Instants are Unix milliseconds, 0 for none; durations are
// milliseconds. The scripts access the first four members by position, so these must stay first.
type record struct {
	Version    int    `json:"v"`
	Revision   uint64 `json:"rev"`
	Generation uint64 `json:"gen"`
	Operation  string `json:"op"`

	ID         string         `json:"id"`
	Name       string         `json:"name,omitempty"`
	Scope      string         `json:"scope,omitempty"`
	Audiences  []string       `json:"aud,omitempty"`
	TokenTTL   int64          `json:"ttl,omitempty"`
	Rate       string         `json:"rate,omitempty"`
	Introspect string         `json:"introspect,omitempty"`
	Disabled   bool           `json:"disabled,omitempty"`
	Created    int64          `json:"created"`
	Updated    int64          `json:"updated"`
	Secrets    []secretRecord `json:"secrets,omitempty"`
}

type secretRecord struct {
	ID      string `json:"id"`
	SHA256  []byte `json:"sha256"` // base64
	Created int64  `json:"created,omitempty"`
	Expires int64  `json:"expires,omitempty"`
}

// encodeRecord returns the stored form of c without an operation.
func encodeRecord(c *clients.Client) (string, error) {
	r := record{
		Version: recordVersion, Revision: c.Revision, Generation: c.Generation,
		ID: c.ID, Name: c.Name, Scope: c.Scopes.String(), Audiences: c.Audiences,
		TokenTTL: c.TokenTTL.Milliseconds(), Rate: c.Rate.String(), Disabled: c.Disabled,
		Created: unixMilli(c.CreatedAt), Updated: unixMilli(c.UpdatedAt),
	}
	if c.Introspect != clients.IntrospectNone {
		r.Introspect = c.Introspect.String()
	}
	for _, s := range c.Secrets {
		r.Secrets = append(r.Secrets, secretRecord{s.ID, s.SHA256[:], unixMilli(s.CreatedAt), unixMilli(s.ExpiresAt)})
	}
	text, err := encode(r)
	if err != nil || c.Extra == "" {
		return text, err
	}
	return strings.TrimSuffix(text, "}") + "," + c.Extra + "}", nil
}

// encodeRest encodes the members of a record after the operation, to which a script adds the first
// four. It returns an error for a client that decodeRecord would refuse, so that no gateway stores
// a record that none can read.
func encodeRest(c clients.Client) (string, error) {
	c.Revision = 1 // any valid revision; the script sets the real one
	text, err := encodeRecord(&c)
	if err != nil {
		return "", err
	}
	if _, err := decodeRecord(c.ID, text); err != nil {
		return "", fmt.Errorf("%w: %w", clients.ErrDocument, err)
	}
	_, rest, found := strings.Cut(text, `"op":"",`)
	if !found {
		return "", errors.New("the stored form of a client does not begin as it should")
	}
	return rest, nil
}

// decodeRecord decodes the stored form of the client id. It keeps unknown members in Extra: within
// one version of the form, a newer release adds only members that older ones may ignore. Apart from
// that, it accepts only what encodeRecord can have written.
func decodeRecord(id, text string) (clients.Client, error) {
	var r record
	extra, err := decodeMembers(text, &r)
	if err != nil {
		return clients.Client{}, fmt.Errorf("it is not JSON of version %d: %w", recordVersion, err)
	}
	if r.Version != recordVersion {
		return clients.Client{}, fmt.Errorf("it has version %d, this program knows version %d", r.Version, recordVersion)
	}
	if r.ID != id {
		return clients.Client{}, errors.New("it is that of another client")
	}
	c, err := r.client()
	c.Extra = extra
	return c, err
}

// decodeMembers decodes the members of text that record has, and returns the others.
func decodeMembers(text string, r *record) (extra string, err error) {
	if err := decodeStrictly([]byte(text), r); err == nil {
		return "", nil
	}
	*r = record{}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return "", err
	}
	known := make(map[string]json.RawMessage, len(members))
	for name, value := range members {
		if slices.Contains(recordMembers, name) {
			known[name] = value
			delete(members, name)
		}
	}
	plain, err := json.Marshal(known)
	if err != nil {
		return "", err
	}
	if err := decodeStrictly(plain, r); err != nil || len(members) == 0 {
		return "", err
	}
	rest, err := encode(members)
	return strings.TrimSuffix(strings.TrimPrefix(rest, "{"), "}"), err
}

// decodeStrictly decodes one JSON object and refuses unknown members, those of secrets included: a
// newer version that adds one to a secret may check the secret in another way.
func decodeStrictly(text []byte, r *record) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(r); err != nil {
		return err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// recordMembers are the names of the members of record.
var recordMembers = func() (names []string) {
	for field := range reflect.TypeFor[record]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// encode returns v as JSON on one line.
func encode(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the text is not put into HTML, and & is common in URIs
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func (r *record) client() (clients.Client, error) {
	if reason := r.fault(); reason != "" {
		return clients.Client{}, errors.New(reason)
	}
	rate, err := parseRate(r.Rate)
	if err != nil {
		return clients.Client{}, err
	}
	introspect, err := parseIntrospection(r.Introspect)
	if err != nil {
		return clients.Client{}, err
	}
	c := clients.Client{
		ID: r.ID, Name: r.Name, Scopes: scope.List(r.Scope), Audiences: r.Audiences,
		TokenTTL: time.Duration(r.TokenTTL) * time.Millisecond, Rate: rate, Introspect: introspect, Disabled: r.Disabled,
		Source: clients.SourceRegistry, Revision: r.Revision, Generation: r.Generation,
		CreatedAt: instant(r.Created), UpdatedAt: instant(r.Updated),
	}
	for _, s := range r.Secrets {
		c.Secrets = append(c.Secrets, clients.Secret{
			ID: s.ID, SHA256: [sha256.Size]byte(s.SHA256), CreatedAt: instant(s.Created), ExpiresAt: instant(s.Expires),
		})
	}
	return c, nil
}

// fault returns what is wrong with a record, or "".
func (r *record) fault() string {
	list, err := scope.Parse(r.Scope)
	const longest = int64(1<<63-1) / int64(time.Millisecond)
	switch {
	case !clients.ValidID(r.ID):
		return "the id is not valid"
	case r.Revision == 0 || r.Revision > maxExact || r.Generation > maxExact:
		return "the revision or the generation is out of range"
	case r.Name != "" && !clients.ValidName(r.Name):
		return "the name is not valid"
	case err != nil || list.String() != r.Scope:
		return "the scope is not valid"
	case slices.ContainsFunc(r.Audiences, func(a string) bool { return !clients.ValidAudience(a) }):
		return "an audience is not valid"
	case r.TokenTTL < 0 || r.TokenTTL > longest:
		return "the lifetime of tokens is out of range"
	case !validInstant(r.Created) || !validInstant(r.Updated):
		return "an instant is out of range"
	case len(r.Secrets) > clients.MaxSecrets:
		return "it has too many secrets"
	default:
		return r.secretFault()
	}
}

func (r *record) secretFault() string {
	nothing := sha256.Sum256(nil)
	for i, s := range r.Secrets {
		taken := slices.ContainsFunc(r.Secrets[:i], func(other secretRecord) bool { return other.ID == s.ID })
		switch {
		case !clients.ValidID(s.ID) || taken:
			return "the id of a secret is not valid"
		case len(s.SHA256) != sha256.Size || bytes.Equal(s.SHA256, nothing[:]):
			return "a digest is not valid"
		case !validInstant(s.Created) || !validInstant(s.Expires):
			return "an instant of a secret is out of range"
		}
	}
	return ""
}

func parseRate(text string) (limit.Rate, error) {
	if text == "" {
		return limit.Rate{}, nil
	}
	return limit.ParseRate(text)
}

func parseIntrospection(text string) (clients.Introspection, error) {
	if text == "" {
		return clients.IntrospectNone, nil
	}
	return clients.ParseIntrospection(text)
}

func validInstant(milli int64) bool { return milli >= 0 && milli <= maxExact }

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(milli int64) time.Time {
	if milli == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milli).UTC()
}
