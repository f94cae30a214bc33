package clients

import (
	"fmt"
	"time"

	"snowgate/internal/scope"
)

// Credential is a secret as a [Store] takes it. It comes from [Issue], which
// makes a secret, or from [Adopt], which checks one: so no digest of anything but
// a client secret gets into a store. The zero value is none.
type Credential struct{ secret Secret }

// IsZero reports whether there is no secret.
func (c Credential) IsZero() bool { return c.secret == Secret{} }

// Secret returns what is kept of the secret.
func (c Credential) Secret() Secret { return c.secret }

// Issue makes a new secret. An empty id lets the store choose one. expires is
// the first instant at which it is no longer good, zero for never; it and now,
// the time of creation, are cut to milliseconds. plain is to be shown once.
func Issue(id string, now, expires time.Time) (plain Plaintext, c Credential) {
	plain, digest := NewSecret()
	return plain, Credential{Secret{ID: id, SHA256: digest, CreatedAt: milliseconds(now), ExpiresAt: milliseconds(expires)}}
}

// milliseconds cuts t to what a store keeps. The zero time stays what it is.
func milliseconds(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// Bootstrap makes the client [AdminID], which may have the scope [AdminScope]
// and nothing else, of a secret in clear: the first administrator of a gateway
// whose configuration file has none. The error matches [ErrSecretFormat] and
// does not repeat the text; there is no secret that is good by default.
func Bootstrap(secret string) (Client, error) {
	if err := CheckSecret(secret); err != nil {
		return Client{}, fmt.Errorf("the secret of the client %s: %w", AdminID, err)
	}
	return Client{
		ID:      AdminID,
		Secrets: []Secret{{ID: "environment", SHA256: Digest(secret)}},
		Scopes:  scope.Of(AdminScope),
		Source:  SourceEnvironment,
	}, nil
}
