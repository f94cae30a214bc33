package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest/redistest"
)

// consecutive makes ids, one after the other.
type consecutive struct{ last idgen.ID }

func (c *consecutive) Next(context.Context) (idgen.ID, error) {
	c.last++
	return c.last, nil
}

// TestRevokeWithoutARecord: Redis loses the record of a token that is in the cache of a gateway, and
// tells nobody. A revocation ends the token at that gateway at once, and the others are told.
func TestRevokeWithoutARecord(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server, idgen.ID){
		"DEL, its message lost": func(server *redistest.Server, id idgen.ID) { server.Do("DEL", keyOf(id)) },
		"FLUSHALL":              func(server *redistest.Server, _ idgen.ID) { server.FlushAll() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			other := startGateway(t, redisstore.Options{URL: server.URL()})
			other.settled()
			here := tokens.NewService(tokens.Config{
				Store: open(t, redisstore.Options{URL: server.URL()}), IDs: new(consecutive),
				Keys: tokens.FixedKeyring(tokens.NewKey()), CacheTTL: time.Hour,
				MintTime: func(idgen.ID) time.Time { return time.Now() },
			})
			defer here.Close()
			grant := tokens.Claims{Client: "orders", Scope: scope.Of("orders.read"), TTL: time.Hour}
			bearer, token, err := here.Issue(t.Context(), grant)
			if err != nil {
				t.Fatalf("Issue = %v", err)
			}
			if _, err := here.Validate(t.Context(), bearer.Reveal()); err != nil {
				t.Fatalf("Validate = %v, want the token", err)
			}
			lose(server, token.ID)
			if err := here.Revoke(t.Context(), bearer.Reveal(), grant.Client); err != nil {
				t.Errorf("Revoke = %v, want nil", err)
			}
			if _, err := here.Validate(t.Context(), bearer.Reveal()); !errors.Is(err, tokens.ErrUnknown) {
				t.Errorf("Validate after Revoke = %v, want ErrUnknown", err)
			}
			other.eventually("hear of the token", func() bool { return other.heard(token.ID) == 1 })
		})
	}
}
