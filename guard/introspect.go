package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// maxResponse bounds what is read of a response of the gateway, in bytes.
const maxResponse = 1 << 20

// introspect asks the gateway about a token. Everything but a clear response is ErrUnavailable, a
// panic as of the caller's http.RoundTripper included.
func (g *Guard) introspect(ctx context.Context, token string) (identity *Identity, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("%w: the question panicked (%T)", ErrUnavailable, caught)
		}
	}()
	secret := g.credentials.Secret
	if path := g.credentials.SecretFile; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%w: reading the service's secret: %w", ErrUnavailable, err)
		}
		secret = strings.TrimSpace(string(text))
	}
	form := url.Values{"token": {token}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.issuer+"/oauth2/introspect", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	request.SetBasicAuth(url.QueryEscape(g.credentials.ID), url.QueryEscape(secret))
	response, err := g.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		return g.read(body)
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%w: it responds with %d: client %q needs the right secret and the right to introspect",
			ErrUnavailable, response.StatusCode, g.credentials.ID)
	default:
		return nil, fmt.Errorf("%w: it responds with %d", ErrUnavailable, response.StatusCode)
	}
}

// read reads an introspection response (RFC 7662 §2.2).
func (g *Guard) read(body []byte) (*Identity, error) {
	var said struct {
		Active   *bool           `json:"active"`
		Scope    string          `json:"scope"`
		Client   string          `json:"client_id"`
		TokenID  string          `json:"jti"`
		Expiry   int64           `json:"exp"`
		Audience json.RawMessage `json:"aud"`
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Active == nil {
		return nil, fmt.Errorf("%w: its response is no introspection response; is the issuer right?", ErrUnavailable)
	}
	if !*said.Active {
		return nil, ErrInvalid
	}
	audience, err := readAudience(said.Audience)
	if err != nil || said.Expiry == 0 {
		return nil, fmt.Errorf("%w: its response has no exp or a bad aud", ErrUnavailable)
	}
	expiry := time.Unix(said.Expiry, 0)
	if !time.Now().Before(expiry) || !g.options.AnyAudience && !slices.Contains(audience, g.options.Audience) {
		return nil, ErrInvalid
	}
	return &Identity{TokenID: said.TokenID, Client: said.Client, Scopes: strings.Fields(said.Scope), Audience: audience, Expiry: expiry}, nil
}

// readAudience reads aud, which is one string or a list.
func readAudience(text json.RawMessage) (audience []string, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	var one string
	if json.Unmarshal(text, &one) == nil {
		return []string{one}, nil
	}
	if json.Unmarshal(text, &audience) != nil {
		return nil, errors.New("aud is neither a string nor a list")
	}
	return audience, nil
}
