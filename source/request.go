package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// maxResponse bounds what is read of a response of the token endpoint, in bytes.
	maxResponse = 1 << 20
	// maxFile bounds what is read of a secret or an assertion, in bytes.
	maxFile = 64 << 10
	// maxRetryAfter bounds how long a server can keep the Source from asking again.
	maxRetryAfter = time.Hour
	// unknownLifetime stands in for expires_in where the server does not say it.
	unknownLifetime = 5 * time.Minute
	// maxLifetime bounds what is believed of expires_in.
	maxLifetime = 10 * 365 * 24 * time.Hour
	// maxDescription bounds what an error repeats of a server's text, in bytes.
	maxDescription = 200

	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// Error is a refusal by the token endpoint, or a response that is not one of a token endpoint.
type Error struct {
	// Status is the status of the response.
	Status int
	// Code is the error of RFC 6749 §5.2, such as invalid_client; empty if there was none.
	Code string
	// Description is the server's text, if any.
	Description string
	// RetryAt is when the server wants to be asked again; zero if it did not say.
	RetryAt time.Time
}

// Error says what the server answered, and what to look at.
func (e *Error) Error() string {
	text := fmt.Sprintf("source: the token endpoint answers %d", e.Status)
	if e.Code == "" {
		text += "; is TokenURL that of a token endpoint?"
	} else {
		text += " " + strconv.Quote(e.Code)
	}
	if e.Description != "" {
		text += ": " + strconv.Quote(e.Description)
	}
	if !e.RetryAt.IsZero() {
		text += "; next attempt at " + e.RetryAt.UTC().Format(time.RFC3339)
	}
	return text
}

// Temporary reports whether the same request may work later: the server is busy or has a fault.
func (e *Error) Temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// credentials returns the secret or the assertion, and a digest of it.
func (c Config) credentials() (text string, digest [32]byte, err error) {
	text = c.Secret
	if path := c.SecretFile + c.AssertionFile; path != "" {
		if text, err = readFile(path); err != nil {
			return "", digest, err
		}
	}
	return text, sha256.Sum256([]byte(text)), nil
}

// readFile returns the text of a file without white space around it.
func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("source: reading the client's credentials: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("source: reading the client's credentials: %w", err)
	}
	text := strings.TrimSpace(string(content))
	if text == "" || len(content) > maxFile {
		return "", fmt.Errorf("source: %s: needs to hold the client's credentials, 1 to %d bytes", path, maxFile)
	}
	return text, nil
}

// request sends one token request, and another one if the file of the credentials was changed
// just before they were refused. A panic, as of the caller's http.RoundTripper, is an error.
func (s *Source) request(ctx context.Context) (token Token, digest [32]byte, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("source: the token request panicked (%T)", caught)
		}
	}()
	var text string
	if text, digest, err = s.config.credentials(); err != nil {
		return Token{}, digest, err
	}
	token, err = s.ask(ctx, text)
	if refused, ok := errors.AsType[*Error](err); !ok || refused.Code != "invalid_client" {
		return token, digest, err
	}
	again, changed, readErr := s.config.credentials()
	if readErr != nil || changed == digest {
		return Token{}, digest, err
	}
	token, err = s.ask(ctx, again)
	return token, changed, err
}

// ask sends one token request with a secret or an assertion.
func (s *Source) ask(ctx context.Context, credentials string) (Token, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(s.config.Scopes) > 0 {
		form.Set("scope", strings.Join(s.config.Scopes, " "))
	}
	if len(s.config.Resources) > 0 {
		form["resource"] = s.config.Resources
	}
	if s.config.AssertionFile != "" {
		form.Set("client_id", s.config.ClientID)
		form.Set("client_assertion_type", assertionType)
		form.Set("client_assertion", credentials)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return Token{}, fmt.Errorf("source: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	if s.config.AssertionFile == "" {
		// RFC 6749 §2.3.1: both are form-encoded before they are joined.
		request.SetBasicAuth(url.QueryEscape(s.config.ClientID), url.QueryEscape(credentials))
	}
	sent := time.Now()
	response, err := s.client.Do(request)
	if err != nil {
		return Token{}, fmt.Errorf("source: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return Token{}, fmt.Errorf("source: reading the response of the token endpoint: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return Token{}, refusal(response, body)
	}
	return readToken(body, sent)
}

// refusal makes an *Error of a response.
func refusal(response *http.Response, body []byte) *Error {
	e := &Error{Status: response.StatusCode, RetryAt: retryAt(response.Header.Get("Retry-After"), time.Now())}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "application/json" {
		return e
	}
	var said struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	if json.Unmarshal(body, &said) == nil {
		e.Code = said.Code[:min(len(said.Code), maxDescription)]
		e.Description = said.Description[:min(len(said.Description), maxDescription)]
	}
	return e
}

// retryAt reads a Retry-After field, in seconds or as a date; zero if it says nothing.
func retryAt(field string, now time.Time) time.Time {
	if seconds, err := strconv.ParseUint(field, 10, 63); err == nil {
		return now.Add(time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second)
	}
	at, err := http.ParseTime(field)
	if err != nil || at.Before(now) {
		return time.Time{}
	}
	if latest := now.Add(maxRetryAfter); at.After(latest) {
		return latest
	}
	return at
}

// readToken reads a response of RFC 6749 §5.1 to a request that was sent at sent. The token's
// life is counted from then: the server's clock started later.
func readToken(body []byte, sent time.Time) (Token, error) {
	var said struct {
		AccessToken string      `json:"access_token"`
		TokenType   string      `json:"token_type"`
		ExpiresIn   json.Number `json:"expires_in"`
		Scope       string      `json:"scope"`
	}
	if len(body) > maxResponse || json.NewDecoder(bytes.NewReader(body)).Decode(&said) != nil {
		return Token{}, errors.New("source: the response of the token endpoint is not JSON; is TokenURL right?")
	}
	if !strings.EqualFold(said.TokenType, "Bearer") || !isBearer(said.AccessToken) {
		return Token{}, errors.New("source: the response of the token endpoint has no bearer token; is TokenURL right?")
	}
	life := unknownLifetime
	if seconds, err := said.ExpiresIn.Float64(); err == nil {
		life = time.Duration(min(max(seconds, 0), maxLifetime.Seconds()) * float64(time.Second))
	}
	if life <= 0 {
		return Token{}, errors.New("source: the token endpoint issued a token that has ended already")
	}
	expiry := sent.Add(life)
	return Token{Expiry: expiry, Scope: said.Scope, value: said.AccessToken, usedTo: expiry.Add(-min(maxMargin, life/10))}, nil
}

// isBearer reports whether text is a b64token of RFC 6750 §2.1, which fits a header field.
func isBearer(text string) bool {
	text = strings.TrimRight(text, "=")
	return text != "" && strings.IndexFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~+/", r)
	}) < 0
}
