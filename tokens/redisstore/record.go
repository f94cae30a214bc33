package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// A record is stored as
//
//	version    1 byte: recordPlain or recordGeneration
//	digest     32 bytes
//	expiry     uvarint, Unix milliseconds
//	generation uvarint, not 0; only with recordGeneration
//	client     uvarint length, bytes
//	scope      uvarint length, bytes (RFC 6749 §3.3, as scope.List writes it)
//	audience   uvarint length, bytes; repeated to the end
//
// Every uvarint has the shortest form, and generation 0 is left out, so a record has exactly one
// encoding. Most clients have never been revoked. Their tokens take no extra byte, and gateways
// that do not know generations can read them.
const (
	recordPlain      = 1
	recordGeneration = 2
)

// Limits of a record. They are far above what the configuration permits, and low enough that a
// damaged value does no harm.
const (
	maxClient    = 1 << 10
	maxScope     = 16 << 10
	maxAudience  = 2 << 10
	maxAudiences = 128
)

var errRecord = errors.New("the record is damaged")

// encodeRecord returns the stored form of r, or an error if r exceeds a limit.
func encodeRecord(r tokens.Record) ([]byte, error) {
	t := &r.Token
	expiry := t.ExpiresAt.UnixMilli()
	if t.Client == "" || len(t.Client) > maxClient || len(t.Scope) > maxScope || len(t.Audience) > maxAudiences || expiry < 0 {
		return nil, errors.New("redisstore: the token holds more than can be stored")
	}
	size := 1 + len(r.Digest) + 4*binary.MaxVarintLen64 + len(t.Client) + len(t.Scope)
	for _, audience := range t.Audience {
		size += binary.MaxVarintLen16 + len(audience)
	}
	b := make([]byte, 0, size)
	b = append(b, recordPlain)
	b = append(b, r.Digest[:]...)
	b = binary.AppendUvarint(b, uint64(expiry))
	if t.Generation != 0 {
		b[0] = recordGeneration
		b = binary.AppendUvarint(b, t.Generation)
	}
	b = appendText(b, t.Client)
	b = appendText(b, t.Scope.String())
	for _, audience := range t.Audience {
		if audience == "" || len(audience) > maxAudience {
			return nil, fmt.Errorf("redisstore: an audience of %d bytes cannot be stored", len(audience))
		}
		b = appendText(b, audience)
	}
	return b, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decodeRecord decodes the record of id. It accepts only what encodeRecord returns; the error for
// anything else is errRecord. The texts of the token share the memory of stored.
func decodeRecord(id idgen.ID, stored string) (tokens.Record, error) {
	r := tokens.Record{Token: tokens.Token{ID: id}}
	if len(stored) < 1+len(r.Digest) || stored[0] != recordPlain && stored[0] != recordGeneration {
		return tokens.Record{}, errRecord
	}
	in := reader{rest: stored[1+copy(r.Digest[:], stored[1:]):]}
	r.Token.ExpiresAt = in.instant()
	if stored[0] == recordGeneration {
		r.Token.Generation = in.uvarint()
		in.bad = in.bad || r.Token.Generation == 0
	}
	r.Token.Client = in.text(1, maxClient)
	r.Token.Scope = in.scope()
	for !in.bad && len(in.rest) > 0 {
		in.bad = len(r.Token.Audience) == maxAudiences
		r.Token.Audience = append(r.Token.Audience, in.text(1, maxAudience))
	}
	if in.bad {
		return tokens.Record{}, errRecord
	}
	return r, nil
}

// reader decodes values from the front of rest until one is invalid.
type reader struct {
	rest string
	bad  bool
}

func (in *reader) uvarint() uint64 {
	v, n := binary.Uvarint([]byte(in.rest))
	if n <= 0 || n > 1 && in.rest[n-1] == 0 {
		in.bad, in.rest = true, ""
		return 0
	}
	in.rest = in.rest[n:]
	return v
}

func (in *reader) instant() time.Time {
	v := in.uvarint()
	in.bad = in.bad || v > 1<<62
	return time.UnixMilli(int64(v & (1<<62 - 1)))
}

func (in *reader) text(least, most uint64) string {
	n := in.uvarint()
	if in.bad || n < least || n > most || n > uint64(len(in.rest)) {
		in.bad, in.rest = true, ""
		return ""
	}
	text := in.rest[:n]
	in.rest = in.rest[n:]
	return text
}

func (in *reader) scope() scope.List {
	text := in.text(0, maxScope)
	list, err := scope.Parse(text)
	in.bad = in.bad || err != nil || list.String() != text
	return list
}
