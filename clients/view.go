package clients

import (
	"slices"
	"time"
)

// The only grant that the gateway supports and the recommended way to authenticate, by their names
// in RFC 7591 §2; client_secret_post works as well.
const (
	grantType  = "client_credentials"
	authMethod = "client_secret_basic"
)

// View is the JSON form of a client in responses: its document and the members that the server
// adds. It never holds a secret or a digest.
type View struct {
	ID         string       `json:"client_id"`
	Name       string       `json:"client_name,omitempty"`
	Scope      string       `json:"scope"`
	GrantTypes []string     `json:"grant_types"`
	AuthMethod string       `json:"token_endpoint_auth_method"`
	Audiences  []string     `json:"audiences"`
	TokenTTL   int64        `json:"token_ttl,omitempty"` // seconds
	Rate       string       `json:"rate,omitempty"`
	Introspect string       `json:"introspect"`
	Disabled   bool         `json:"disabled"`
	Source     string       `json:"source"`
	CreatedAt  *time.Time   `json:"created_at,omitempty"`
	UpdatedAt  *time.Time   `json:"updated_at,omitempty"`
	Secrets    []SecretView `json:"secrets"`
}

// SecretView is the JSON form of a secret in responses.
type SecretView struct {
	ID         string     `json:"id"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

// View returns the JSON form of c. used holds the last uses of secrets, see [Store.LastUsed]; it
// may be nil.
func (c *Client) View(used map[SecretRef]time.Time) View {
	v := View{
		ID:         c.ID,
		Name:       c.Name,
		Scope:      c.Scopes.String(),
		GrantTypes: []string{grantType},
		AuthMethod: authMethod,
		Audiences:  append([]string{}, c.Audiences...), // [], not null
		TokenTTL:   int64(c.TokenTTL / time.Second),
		Rate:       c.Rate.String(),
		Introspect: c.Introspect.String(),
		Disabled:   c.Disabled,
		Source:     c.Source.String(),
		CreatedAt:  orNil(c.CreatedAt),
		UpdatedAt:  orNil(c.UpdatedAt),
		Secrets:    make([]SecretView, len(c.Secrets)),
	}
	for i, s := range c.Secrets {
		v.Secrets[i] = SecretView{
			ID: s.ID, CreatedAt: orNil(s.CreatedAt), ExpiresAt: orNil(s.ExpiresAt),
			LastUsedAt: orNil(used[SecretRef{c.ID, s.ID}]),
		}
	}
	return v
}

// orNil returns nil for the zero time, which JSON would encode as the year 1.
func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}

// serverMembers are the members of a view that an operator cannot set.
var serverMembers = []string{"source", "created_at", "updated_at", "secrets"}

func isServerMember(name string) bool { return slices.Contains(serverMembers, name) }
