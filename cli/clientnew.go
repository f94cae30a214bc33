package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"snowgate/clients"
	"snowgate/config"
)

// words is a flag that may be repeated.
type words []string

func (w *words) String() string { return strings.Join(*w, " ") }

func (w *words) Set(value string) error {
	*w = append(*w, value)
	return nil
}

func runClientNew(_ context.Context, p *Process, args []string) error {
	flags := newFlags("client new")
	var audiences words
	id := flags.String("id", "", "client `id`: 1 to 128 characters of A-Za-z0-9._~- (needed)")
	scopes := flags.String("scope", "", "scopes the client may be granted, `\"a b\"`")
	flags.Var(&audiences, "audience", "resource `URI` the client may get tokens for; may be repeated")
	ttl := flags.Duration("ttl", 0, "lifetime of the client's tokens (default: that of the gateway)")
	expires := flags.Duration("expires", 0, "`time` after which the secret is no longer good (default: never)")
	introspect := flags.Bool("introspect", false, "the client may call the introspection endpoint")
	quiet := flags.Bool("quiet", false, "for scripts: print only the secret, and the YAML on standard error")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	client := clients.Client{ID: *id, Audiences: audiences, TokenTTL: *ttl}
	if *introspect {
		client.Introspect = clients.IntrospectAny
	}
	list, err := parseScope(*scopes)
	if err := errors.Join(checkClient(client), err); err != nil {
		return usageError{err}
	}
	client.Scopes = list
	secret, digest := clients.NewSecret()
	kept := clients.Secret{ID: "s1", SHA256: digest}
	if *expires > 0 {
		kept.ExpiresAt = time.Now().Add(*expires).Truncate(time.Second)
	}
	client.Secrets = []clients.Secret{kept}
	return printClient(p, client, secret, *quiet)
}

// checkClient tells everything that is wrong with the flags.
func checkClient(c clients.Client) error {
	var faults []error
	if !clients.ValidID(c.ID) {
		faults = append(faults, fmt.Errorf("-id %q: needs 1 to 128 characters of A-Za-z0-9._~-", c.ID))
	}
	for _, audience := range c.Audiences {
		if !clients.ValidAudience(audience) {
			faults = append(faults, fmt.Errorf("-audience %q: needs an absolute URI without a fragment", audience))
		}
	}
	if c.TokenTTL < 0 {
		faults = append(faults, fmt.Errorf("-ttl %s: must be positive", c.TokenTTL))
	}
	return errors.Join(faults...)
}

// printClient shows the secret, once, and what belongs into the file.
func printClient(p *Process, client clients.Client, secret clients.Plaintext, quiet bool) error {
	text := "clients:\n" + indent(config.ClientYAML(client))
	if quiet {
		fmt.Fprint(p.Stderr, text)
		_, err := fmt.Fprintln(p.Stdout, secret.Reveal())
		return err
	}
	_, err := fmt.Fprintf(p.Stdout, "client_id:     %s\nclient_secret: %s\n\n"+
		"The secret is shown this once and stored nowhere. The configuration file\ntakes its digest:\n\n%s",
		client.ID, secret.Reveal(), text)
	return err
}

// indent moves text two columns in, as an element of a YAML list.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
