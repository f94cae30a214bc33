package main

import (
	"context"
	_ "embed" // bearersScript
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// bearerCount is how many tokens every contestant is asked with in turn: so many
// that look-ups of the same token at the same time, which share a response, are rare.
const bearerCount = 1000

//go:embed bearers.lua
var bearersScript string

// bearers are the tokens that a contestant is asked with.
type bearers struct {
	tokens []string
	file   string // with one per line, for wrk
	script string // by which wrk picks them
}

// bearers writes tokens to where wrk finds them.
func (s *site) bearers(tokens []string) (b bearers, err error) {
	b.tokens = tokens
	if b.file, err = s.write("tokens", strings.Join(tokens, "\n")+"\n"); err != nil {
		return b, err
	}
	b.script, err = s.write("bearers.lua", bearersScript)
	return b, err
}

// strangers makes tokens that nobody has issued. They are what contestants that check
// nothing are asked with, so that requests are as long for all.
func strangers() []string {
	tokens := make([]string, bearerCount)
	for i := range tokens {
		text, _ := newSecret()
		tokens[i] = (text + text)[:tokenLength]
	}
	return tokens
}

// bearers gets tokens from the gateway.
func (g *gateway) bearers(ctx context.Context, s *site) (bearers, error) {
	const workers = 8
	asking := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: trustAll, MaxIdleConnsPerHost: workers}}
	defer asking.CloseIdleConnections()
	tokens := make([]string, bearerCount)
	group, ctx := errgroup.WithContext(ctx)
	for worker := range workers {
		group.Go(func() (err error) {
			for i := worker; i < len(tokens) && err == nil; i += workers {
				tokens[i], err = g.tokenBy(ctx, asking, clientID, g.secret, tokenForm)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return bearers{}, fmt.Errorf("%d tokens: %w", bearerCount, err)
	}
	return s.bearers(tokens)
}
