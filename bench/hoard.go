package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"snowgate/bench/load"
)

// tokenLength is the length of a token.
const tokenLength = 70

// hoard is a Redis with many live tokens of clientID.
type hoard struct {
	redis  *process
	at     string
	config string // the configuration file with the client
	secret string
	tokens []byte  // one behind the other
	bytes  float64 // of Redis's memory that each token takes
}

func (h *hoard) count() int         { return len(h.tokens) / tokenLength }
func (h *hoard) token(n int) []byte { return h.tokens[n*tokenLength : (n+1)*tokenLength] }

// gateway starts a gateway on the hoard.
func (h *hoard) gateway(ctx context.Context, s *site, env ...string) (*gateway, error) {
	return s.startSnowgate(ctx, setup{redis: h.redis, at: h.at, config: h.config, secret: h.secret, env: env})
}

// manyTokens returns how many tokens the scenarios work with that want many.
func (b *bench) manyTokens() int {
	if b.quick {
		return 100_000
	}
	return 1_000_000
}

// tokenHoard gets many tokens over HTTP, once for all scenarios.
func (b *bench) tokenHoard(ctx context.Context) (*hoard, error) {
	if b.hoard != nil {
		return b.hoard, nil
	}
	secret, digest := newSecret()
	config, err := b.site.fill("snowgate.yaml", map[string]string{"DIGEST": digest})
	if err != nil {
		return nil, err
	}
	h := &hoard{config: config, secret: secret}
	if h.redis, h.at, err = b.site.startRedis(ctx); err != nil {
		return nil, err
	}
	g, err := h.gateway(ctx, b.site)
	if err != nil {
		return nil, err
	}
	defer g.kill()
	// The memory that the first token needs once does not count.
	if _, err := g.token(ctx); err != nil {
		return nil, err
	}
	before, err := redisMemory(ctx, h.at)
	if err != nil {
		return nil, err
	}
	if h.tokens, err = g.issue(ctx, b.manyTokens()); err != nil {
		return nil, err
	}
	after, err := redisMemory(ctx, h.at)
	h.bytes = float64(after-before) / float64(h.count())
	b.hoard = h
	return h, err
}

// issue gets that many tokens and returns them one behind the other.
func (g *gateway) issue(ctx context.Context, count int) ([]byte, error) {
	request := g.tokenRequest()
	tokens := make([]byte, 0, count*tokenLength)
	var bad error
	_, err := load.Run(ctx, load.Plan{
		Address: g.address, Connections: connections, Count: count, Length: 10 * time.Minute,
		Request: func(int) []byte { return request },
		Answer: func(_, _ int, body []byte) {
			token, err := tokenIn(body)
			bad = errors.Join(bad, err)
			tokens = append(tokens, token...)
		},
	})
	return tokens, errors.Join(err, bad)
}

// tokenRequest asks for a token, as bytes to send.
func (g *gateway) tokenRequest() []byte { return tokenRequest(g.address, clientID, g.secret) }

func tokenRequest(host, id, secret string) []byte {
	return post("/oauth2/token", host, id, secret, tokenForm)
}

// post sends a form with the credentials of a client, as bytes to send.
func post(path, host, id, secret, form string) []byte {
	credentials := base64.StdEncoding.EncodeToString([]byte(id + ":" + secret))
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Basic %s\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", path, host, credentials, len(form), form)
}

// tokenIn finds the token in a response of the token endpoint.
func tokenIn(body []byte) ([]byte, error) {
	_, rest, found := bytes.Cut(body, []byte(`"access_token":"`))
	if !found || len(rest) < tokenLength {
		return nil, fmt.Errorf("there is no token in %q", body)
	}
	return rest[:tokenLength], nil
}

// request asks for path with a token, as bytes to send.
func request(buffer []byte, host, path string, token []byte) []byte {
	buffer = append(buffer[:0], "GET "...)
	buffer = append(buffer, path...)
	buffer = append(buffer, " HTTP/1.1\r\nHost: "...)
	buffer = append(buffer, host...)
	buffer = append(buffer, "\r\nAuthorization: Bearer "...)
	buffer = append(buffer, token...)
	return append(buffer, "\r\n\r\n"...)
}
