package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/source"
)

// noCache is the value of -cache that keeps no token in a file.
const noCache = "none"

// tokenFlags are the flags of the commands that get a token for a program.
type tokenFlags struct {
	url, clientID, secretFile, scope, resource, cache *string
	fresh                                             *bool
}

func addTokenFlags(p *Process, flags *flag.FlagSet) *tokenFlags {
	return &tokenFlags{
		url:        flags.String("url", p.publicURL(), "`URL` of the gateway, where tokens are issued"),
		clientID:   flags.String("client-id", "", "`id` of the client to act as"),
		secretFile: flags.String("secret-file", "", "`path` of a file with the client's secret"),
		scope:      flags.String("scope", "", "`scopes` to ask for, separated by spaces; empty: the client's default"),
		resource:   flags.String("resource", "", "`audience` to ask for; empty: all of the client's"),
		cache:      flags.String("cache", "", "`path` of the file that keeps the token; none: keep it nowhere (default: a file below ~/.cache/snowgate)"),
		fresh:      flags.Bool("fresh", false, "get a new token, also if the file has a good one"),
	}
}

func runTokenGet(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("token get")
	wanted := addTokenFlags(p, flags)
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	token, err := wanted.get(ctx, p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Stdout, token)
	return err
}

// check tells everything that is wrong with the flags.
func (f *tokenFlags) check(p *Process) error {
	faults := []error{p.environFault()}
	if u, err := url.Parse(*f.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		faults = append(faults, errors.New("-url: needs to be a URL like http://127.0.0.1:8080"))
	}
	if !clients.ValidID(*f.clientID) {
		faults = append(faults, fmt.Errorf("-client-id %q: %s", *f.clientID, idWanted))
	}
	if *f.secretFile == "" {
		faults = append(faults, errors.New("-secret-file: needs to be the path of a file with the client's secret"))
	}
	if *f.cache == "" {
		path, err := f.defaultCache(p.Environ)
		*f.cache = path
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// defaultCache is a file for exactly these flags, so that tokens for different gateways, clients,
// scopes or audiences are never mixed up.
func (f *tokenFlags) defaultCache(environ []string) (string, error) {
	var home, cache string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "HOME":
			home = value
		case "XDG_CACHE_HOME":
			cache = value
		}
	}
	if !filepath.IsAbs(cache) && filepath.IsAbs(home) {
		cache = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(cache) {
		return "", errors.New("-cache: needs to be a path or none, because neither XDG_CACHE_HOME nor HOME is set")
	}
	return filepath.Join(cache, "snowgate", "token-"+f.key()[:32]), nil
}

// key identifies what a token was asked for.
func (f *tokenFlags) key() string {
	text, _ := json.Marshal([]string{strings.TrimSuffix(*f.url, "/"), *f.clientID, *f.scope, *f.resource})
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])
}

// get returns a token: that of the file while it is fresh, else a new one, which it keeps there.
// One process at a time gets a new one; the others wait and find it in the file. If no new one can
// be had, get returns the token of the file as long as it is valid.
func (f *tokenFlags) get(ctx context.Context, p *Process) (string, error) {
	if err := f.check(p); err != nil {
		return "", usageError{err}
	}
	if *f.cache == noCache {
		token, err := f.fetch(ctx)
		return token.Value(), err
	}
	kept := keptToken{}
	if !*f.fresh {
		if kept = readKept(*f.cache, f.key()); time.Now().Before(kept.RenewAt) {
			return kept.Token, nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(*f.cache), 0o700); err != nil {
		return "", fmt.Errorf("-cache: %w", err)
	}
	unlock := lockFile(ctx, *f.cache+".lock")
	defer unlock()
	if !*f.fresh {
		if kept = readKept(*f.cache, f.key()); time.Now().Before(kept.RenewAt) {
			return kept.Token, nil
		}
	}
	sent := time.Now()
	token, err := f.fetch(ctx)
	if err != nil {
		if time.Until(kept.Expiry) > time.Second {
			fmt.Fprintf(p.Stderr, "snowgate: the token of the file serves on until %s: %v\n", kept.Expiry.UTC().Format(time.RFC3339), err)
			return kept.Token, nil
		}
		return "", err
	}
	next := keptToken{Key: f.key(), Token: token.Value(), Expiry: token.Expiry, RenewAt: sent.Add(token.Expiry.Sub(sent) * 4 / 5)}
	if err := next.write(*f.cache); err != nil {
		fmt.Fprintf(p.Stderr, "snowgate: the token is not kept: %v\n", err)
	}
	return token.Value(), nil
}

// fetch gets a new token from the gateway.
func (f *tokenFlags) fetch(ctx context.Context) (source.Token, error) {
	wanted := source.Config{
		TokenURL: strings.TrimSuffix(*f.url, "/") + handlers.TokenPath,
		ClientID: *f.clientID, SecretFile: *f.secretFile, Scopes: strings.Fields(*f.scope),
	}
	if *f.resource != "" {
		wanted.Resources = []string{*f.resource}
	}
	tokens, err := source.New(wanted)
	if err != nil {
		return source.Token{}, err
	}
	return tokens.Token(ctx)
}

// keptToken is the content of the file of -cache.
type keptToken struct {
	Key     string    `json:"key"` // what the token was asked for
	Token   string    `json:"access_token"`
	Expiry  time.Time `json:"expiry"`
	RenewAt time.Time `json:"renew_at"`
}

// readKept returns the token of a file; the zero value if there is none for key, or if others may
// read the file.
func readKept(path, key string) keptToken {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return keptToken{}
	}
	text, err := os.ReadFile(path)
	var kept keptToken
	if err != nil || json.Unmarshal(text, &kept) != nil || kept.Key != key {
		return keptToken{}
	}
	return kept
}

// write replaces the file of path atomically: a reader finds the old content or the new one.
func (k keptToken) write(path string) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
