package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"snowgate/clients"
	"snowgate/internal/scope"
	"snowgate/limit"
)

// idWanted describes valid ids of clients and secrets, for fault messages.
const idWanted = "1 to 128 characters of A-Za-z0-9._~-, nor . or .."

// clientReader reads the clients of one file and remembers what must not occur
// in it twice.
type clientReader struct {
	*decoder
	rules   fileRules
	ids     map[string]*yaml.Node
	digests map[[sha256.Size]byte]*yaml.Node
}

// clients reads the list of clients.
func (d *decoder) clients(n *yaml.Node, rules fileRules) []clients.Client {
	r := &clientReader{
		decoder: d, rules: rules,
		ids: map[string]*yaml.Node{}, digests: map[[sha256.Size]byte]*yaml.Node{},
	}
	elements := d.list(n, "clients")
	list := slices.Grow([]clients.Client(nil), len(elements))
	for _, element := range elements {
		list = append(list, r.client(element))
	}
	return list
}

func (r *clientReader) client(n *yaml.Node) clients.Client {
	o := r.object(n, "a client", "id", "name", "secrets", "scopes", "audiences", "token_ttl", "rate", "introspect", "disabled")
	return clients.Client{
		ID:         r.name(r.required(o, "id"), "client id", idWanted, clients.ValidID, r.ids),
		Name:       r.clientName(o.keys["name"]),
		Secrets:    r.secrets(o),
		Scopes:     r.granted(o.keys["scopes"]),
		Audiences:  r.audiences(o.keys["audiences"]),
		TokenTTL:   r.tokenTTL(o.keys["token_ttl"]),
		Rate:       r.rate(o.keys["rate"]),
		Introspect: r.introspection(o.keys["introspect"]),
		Disabled:   r.boolean(o.keys["disabled"], "disabled"),
	}
}

// name reads a text that satisfies valid and that nothing else in taken has.
func (d *decoder) name(n *yaml.Node, what, wanted string, valid func(string) bool, taken map[string]*yaml.Node) string {
	text, ok := d.text(n, what)
	if !ok {
		return ""
	}
	if !valid(text) {
		d.fault(n, "%s %s is not %s", what, quote(text), wanted)
		return ""
	}
	if earlier := taken[text]; earlier != nil {
		d.fault(n, "%s %s is taken, at %s", what, quote(text), place(earlier))
		return ""
	}
	taken[text] = n
	return text
}

// scopes reads a list of scope-tokens.
func (d *decoder) scopes(n *yaml.Node) scope.List {
	return scope.Of(d.unique(n, "scopes", "a scope-token (RFC 6749 §3.3)", scope.ValidToken)...)
}

// granted reads the scopes of a client, which a token must be able to hold.
func (d *decoder) granted(n *yaml.Node) scope.List {
	list := d.scopes(n)
	switch {
	case len(list.Names()) > clients.MaxScopes:
		d.fault(n, "a client may have %d scopes at most", clients.MaxScopes)
	case len(list) > clients.MaxScopeLen:
		d.fault(n, "the scopes of a client may have %d characters at most, with a space between each", clients.MaxScopeLen)
	}
	return list
}

// audiences reads the resources of a client, which a token must be able to hold.
func (d *decoder) audiences(n *yaml.Node) []string {
	list := d.unique(n, "audiences", audienceWanted, clients.ValidAudience)
	if len(list) > clients.MaxAudiences {
		d.fault(n, "a client may have %d audiences at most", clients.MaxAudiences)
	}
	return list
}

// clientName reads the name for people.
func (d *decoder) clientName(n *yaml.Node) string {
	text, ok := d.text(n, "name")
	if ok && !clients.ValidName(text) {
		d.fault(n, "name %s is not %s", quote(text), clients.NameWanted)
	}
	return text
}

// rate reads how many tokens a client may ask for; nothing is no limit.
func (d *decoder) rate(n *yaml.Node) limit.Rate {
	text, ok := d.text(n, "rate")
	if !ok {
		return limit.Rate{}
	}
	rate, err := limit.ParseRate(text)
	if err != nil {
		d.fault(n, "rate %s: %v", quote(text), err)
	}
	return rate
}

// introspection reads true for any token, false for none, or audience; nothing
// is false.
func (d *decoder) introspection(n *yaml.Node) clients.Introspection {
	switch {
	case n == nil:
		return clients.IntrospectNone
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value == clients.IntrospectAudience.String():
		return clients.IntrospectAudience
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool":
		d.fault(n, "introspect must be true, false or audience")
		return clients.IntrospectNone
	case d.boolean(n, "introspect"):
		return clients.IntrospectAny
	default:
		return clients.IntrospectNone
	}
}

func (r *clientReader) tokenTTL(n *yaml.Node) time.Duration {
	ttl := r.duration(n, "token_ttl", 0)
	switch {
	case ttl == 0:
	case ttl < time.Second:
		r.fault(n, "token_ttl %s is shorter than a second", ttl)
	case r.rules.maxTTL > 0 && ttl > r.rules.maxTTL:
		r.fault(n, "token_ttl %s is longer than %sTOKEN_MAX_TTL, %s", ttl, Prefix, r.rules.maxTTL)
	}
	return ttl
}

func (r *clientReader) secrets(o object) []clients.Secret {
	elements := r.list(o.keys["secrets"], "secrets")
	switch {
	case len(elements) > clients.MaxSecrets:
		r.fault(elements[clients.MaxSecrets], "a client may have %d secrets at most", clients.MaxSecrets)
		return nil
	case len(elements) == 0 && o.node != nil:
		r.note(o.node, "a client without secrets cannot get tokens")
	}
	ids := map[string]*yaml.Node{}
	var list []clients.Secret
	for _, element := range elements {
		list = append(list, r.secret(element, ids))
	}
	return list
}

func (r *clientReader) secret(n *yaml.Node, ids map[string]*yaml.Node) clients.Secret {
	o := r.object(n, "a secret", "id", "sha256", "expires_at")
	s := clients.Secret{
		ID:        r.name(r.required(o, "id"), "secret id", idWanted, clients.ValidID, ids),
		SHA256:    r.digest(r.required(o, "sha256")),
		ExpiresAt: r.instant(o.keys["expires_at"], "expires_at"),
	}
	if !s.Live(r.rules.now) {
		r.note(o.keys["expires_at"], "secret %s has expired", quote(s.ID))
	}
	return s
}

// digest reads the SHA-256 of a secret. The fault never repeats the text, which may be the secret
// itself.
func (r *clientReader) digest(n *yaml.Node) (digest [sha256.Size]byte) {
	text, ok := r.text(n, "sha256")
	if !ok {
		return digest
	}
	raw, err := hex.DecodeString(text)
	switch {
	case looksSecret(text):
		r.fault(n, "sha256 holds a secret itself; replace the secret, and put the SHA-256 of the new one here")
		return digest
	case err != nil || len(raw) != len(digest):
		r.fault(n, "sha256 is not 64 hexadecimal digits")
		return digest
	}
	copy(digest[:], raw)
	switch earlier := r.digests[digest]; {
	case digest == sha256.Sum256(nil):
		r.fault(n, "sha256 is that of an empty text")
	case isExample(digest):
		r.fault(n, "sha256 is that of a word everybody knows; make a secret with: snowgate client new")
	case earlier != nil:
		r.fault(n, "the secret with this sha256 is in use, at %s; every client needs its own", place(earlier))
	default:
		r.digests[digest] = n
	}
	return digest
}

// isExample reports whether digest is that of a word which examples use as a secret. Such a client
// would be open to whoever has read the example.
func isExample(digest [sha256.Size]byte) bool {
	for _, word := range [...]string{
		"test", "test1", "test2", "secret", "Secret", "secret1", "password", "Password", "passw0rd", "changeme", "change-me",
		"changeit", "admin", "root", "example", "demo", "snowgate", "foo", "bar", "hello", "client", "client-secret", "client_secret",
		"my-secret", "mysecret", "s3cr3t", "letmein", "default", "123456", "12345678", "0000",
	} {
		if digest == sha256.Sum256([]byte(word)) || digest == sha256.Sum256([]byte(word+"\n")) {
			return true
		}
	}
	return false
}
