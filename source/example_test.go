package source_test

import (
	"context"
	"log"
	"net/http"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"snowgate/source"
)

// forOAuth2 makes a Source an oauth2.TokenSource, for libraries that want one. It is not in the
// package, which would then depend on golang.org/x/oauth2.
type forOAuth2 struct {
	ctx    context.Context
	source *source.Source
}

// Token implements oauth2.TokenSource.
func (f forOAuth2) Token() (*oauth2.Token, error) {
	token, err := f.source.Token(f.ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Token{AccessToken: token.Value(), TokenType: "Bearer", Expiry: token.Expiry}, nil
}

func TestSourceIsATokenSourceOfOAuth2(t *testing.T) {
	s := &server{}
	var tokens oauth2.TokenSource = forOAuth2{t.Context(), open(t, s)}
	client := &http.Client{Transport: &oauth2.Transport{Source: tokens, Base: s}}
	response, err := client.Get("http://orders.test/")
	if err != nil || response.StatusCode != 200 || s.calls[0] != "orders.test t1" {
		t.Errorf("%v, %v, %q", response, err, s.calls)
	}
	if token, err := tokens.Token(); err != nil || !token.Valid() || time.Until(token.Expiry) > 1000*time.Second {
		t.Errorf("Token = %v, %v", token, err)
	}
}

func Example() {
	tokens, err := source.New(source.Config{
		TokenURL:   "https://gateway.example/oauth2/token",
		ClientID:   "orders-worker",
		SecretFile: "/run/secrets/orders-worker",
		Scopes:     []string{"orders.read"},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: tokens.Transport(nil)}
	response, err := client.Get("https://gateway.example/orders/42")
	if err != nil {
		log.Fatal(err)
	}
	_ = response.Body.Close()
}
