package handlers

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"snowgate/clients"
)

func FuzzParseForm(f *testing.F) {
	for _, seed := range []string{
		"grant_type=client_credentials&scope=a+b", "a=b&a=c", "a=&a=b", "resource=a&resource=b", "%zz", "%", "a;b=c", "=", "&&", "a", "\xff",
		"x=%ff", "x=%00", "x%00=1", "x=%c0%af", "x=%ed%a0%80", "grant%5Ftype=x&grant_type=y", "x=a%2Bb+c", "{\"a\":1}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseForm(body)
		if err != nil {
			if got != nil || !utf8.ValidString(err.Error()) {
				t.Errorf("parseForm(%q) = %v, %v: a form and an error, or the caller's bytes in it", body, got, err)
			}
			return
		}
		for name, values := range got {
			if len(values) != 1 && !repeatable[name] {
				t.Errorf("parseForm(%q): %q is there %d times", body, name, len(values))
			}
			for _, text := range append(slices.Clone(values), name) {
				if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
					t.Errorf("parseForm(%q): %q is no text", body, text)
				}
			}
		}
		// Encoding the form again and reading that gives the same form.
		again, err := parseForm(url.Values(got).Encode())
		if err != nil || !maps.EqualFunc(again, got, slices.Equal) {
			t.Errorf("parseForm(%q) = %v, written and read again %v, %v", body, got, again, err)
		}
	})
}

func FuzzParseBasic(f *testing.F) {
	for _, seed := range []string{"worker:secret", "a%20b:c", ":", "", "a:b:c", "a", "%zz:x", "a+b:c", "\xff:\x00"} {
		f.Add("Basic "+base64.StdEncoding.EncodeToString([]byte(seed)), "worker.1~a_b-c", "sgs_x")
	}
	f.Add("bAsIc  d29ya2VyOng=", "a", "b:c")
	f.Add("Basic", "a", "")
	f.Add("Bearer x", "a", "%41")
	f.Fuzz(func(t *testing.T, line, id, secret string) {
		if got, err := parseBasic(line); err != nil && (!errors.Is(err, clients.ErrUnauthenticated) || got != credentials{}) {
			t.Errorf("parseBasic(%q) = %v: want nothing, and an error that is a failed authentication", line, err)
		}
		// Any id and secret arrive if the client encodes them (RFC 6749 §2.3.1).
		want := credentials{id, secret}
		if got, err := parseBasic(basicLine(url.QueryEscape(id), url.QueryEscape(secret))); err != nil || got != want {
			t.Errorf("%q and %q, encoded: %v, %v", id, secret, got, err)
		}
		// Our ids arrive even from clients that do not encode them.
		if !clients.ValidID(id) || !clients.ValidID(secret) {
			return
		}
		if got, err := parseBasic(basicLine(id, secret)); err != nil || got != want {
			t.Errorf("%q and %q, not encoded: %v, %v", id, secret, got, err)
		}
	})
}

func basicLine(id, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(id+":"+secret))
}
