package clients

import (
	"fmt"
	"time"

	"snowgate/internal/scope"
)

// Credential is a secret as a [Store] takes it. Only [Issue] makes one, so a store never gets the
// digest of a text that is not a client secret. The zero value is no secret.
type Credential struct{ secret Secret }

// IsZero reports whether c is no secret.
func (c Credential) IsZero() bool { return c.secret == Secret{} }

// Secret returns the secret as the registry keeps it.
func (c Credential) Secret() Secret { return c.secret }

// Issue makes a new secret. If id is empty, the store chooses one. now is the time of creation.
// expires is the first instant at which the secret is no longer valid; zero: it never expires. Both
// are truncated to milliseconds. The caller should show plain once and not keep it.
func Issue(id string, now, expires time.Time) (plain Plaintext, c Credential) {
	plain, digest := NewSecret()
	return plain, Credential{Secret{ID: id, SHA256: digest, CreatedAt: milliseconds(now), ExpiresAt: milliseconds(expires)}}
}

// milliseconds truncates t to the precision of a store. The zero time stays zero.
func milliseconds(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// Bootstrap returns the client [AdminID] with the given secret text and only the scope
// [AdminScope]. It is the first administrator of a gateway whose configuration file has none. There
// is no default secret. The error matches [ErrSecretFormat] and does not contain the text.
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
