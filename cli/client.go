package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"snowgate/clients"
	"snowgate/limit"
)

// The commands that change the registry of clients through the admin API.

// shownClient is a client as the admin API shows it, with a note about the effects of a change.
type shownClient struct {
	clients.View
	Secrets []clients.SecretView `json:"secrets,omitempty"` // in place of View's: left out if there are none
	Note    string               `json:"note,omitempty"`
}

// newSecret is the part of the response to a creation that is shown once.
type newSecret struct {
	Secret    string `json:"client_secret"`
	ExpiresAt int64  `json:"client_secret_expires_at"` // Unix seconds; 0: never
}

// clientCommand reads a command line with one client id, which may stand before
// or behind the flags, and connects. define adds flags of the command and may be
// nil; more returns further faults, and may be nil, too.
func clientCommand(
	ctx context.Context, p *Process, name string, args []string, define func(*flag.FlagSet), more func() error,
) (c *adminClient, id string, asJSON bool, err error) {
	flags := newFlags(name)
	shared := addAdminFlags(p, flags)
	if define != nil {
		define(flags)
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		id, args = args[0], args[1:]
	}
	positional := 1
	if id != "" {
		positional = 0
	}
	if err := parseFlags(p, flags, args, positional); err != nil {
		return nil, "", false, err
	}
	id = cmp.Or(id, flags.Arg(0))
	var faults []error
	if !clients.ValidID(id) {
		faults = append(faults, fmt.Errorf("client id %q: %s", id, idWanted))
	}
	if more != nil {
		faults = append(faults, more())
	}
	c, err = shared.connect(ctx, p, faults...)
	return c, id, *shared.output == "json", err
}

func runClientList(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("client list")
	shared := addAdminFlags(p, flags)
	source := flags.String("source", "", "only clients that are kept in: file, environment or registry")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	c, err := shared.connect(ctx, p)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {"1000"}}
	if *source != "" {
		query.Set("source", *source)
	}
	list, err := c.list(ctx, query)
	if err != nil {
		return err
	}
	if *shared.output == "json" {
		return printJSON(p, list)
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLIENT\tSOURCE\tSTATE\tSECRETS\tLAST USED\tSCOPE")
	for _, client := range list {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", client.ID, client.Source, stateOf(client),
			len(client.Secrets), instant(lastUsed(client), "never"), client.Scope)
	}
	return table.Flush()
}

// list follows the pages of the list of clients.
func (c *adminClient) list(ctx context.Context, query url.Values) ([]shownClient, error) {
	all := []shownClient{}
	for {
		var page struct {
			Clients []shownClient `json:"clients"`
		}
		header, err := c.call(ctx, http.MethodGet, "/clients?"+query.Encode(), "", nil, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Clients...)
		if header.Get("Link") == "" || len(page.Clients) == 0 {
			return all, nil
		}
		// The link leads to the same query behind the last client. Made here, it
		// cannot lead elsewhere.
		query.Set("after", page.Clients[len(page.Clients)-1].ID)
	}
}

func stateOf(c shownClient) string {
	if c.Disabled {
		return "disabled"
	}
	return "enabled"
}

// lastUsed is the latest use of any secret of c, nil if there was none.
func lastUsed(c shownClient) *time.Time {
	var latest *time.Time
	for _, s := range c.Secrets {
		if s.LastUsedAt != nil && (latest == nil || s.LastUsedAt.After(*latest)) {
			latest = s.LastUsedAt
		}
	}
	return latest
}

// instant shows t, or otherwise if there is none.
func instant(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return t.UTC().Format(time.RFC3339)
}

func runClientShow(ctx context.Context, p *Process, args []string) error {
	c, id, asJSON, err := clientCommand(ctx, p, "client show", args, nil, nil)
	if err != nil {
		return err
	}
	var client shownClient
	if _, err := c.show(ctx, id, &client); err != nil {
		return err
	}
	// The time of the last use is shown with each secret.
	var used struct {
		Secrets []clients.SecretView `json:"secrets"`
	}
	if _, err := c.call(ctx, http.MethodGet, clientPath(id)+"/secrets", "", nil, &used); err != nil {
		return err
	}
	client.Secrets = used.Secrets
	if asJSON {
		return printJSON(p, client)
	}
	return printClientTable(p, client)
}

// show reads one client into out and returns the entity tag by which it can be
// changed; * for a client that cannot, so that the gateway says why.
func (c *adminClient) show(ctx context.Context, id string, out any) (tag string, err error) {
	header, err := c.call(ctx, http.MethodGet, clientPath(id), "", nil, out)
	return cmp.Or(header.Get("ETag"), "*"), err
}

func printClientTable(p *Process, c shownClient) error {
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "%s\t%s\n", name, cmp.Or(value, "-")) }
	row("client", c.ID)
	row("name", c.Name)
	row("source", c.Source)
	row("state", stateOf(c))
	row("scope", c.Scope)
	row("audiences", strings.Join(c.Audiences, " "))
	ttl := "of the gateway"
	if c.TokenTTL > 0 {
		ttl = (time.Duration(c.TokenTTL) * time.Second).String()
	}
	row("token ttl", ttl)
	row("rate", cmp.Or(c.Rate, "no limit"))
	row("introspect", c.Introspect)
	row("created", instant(c.CreatedAt, ""))
	row("updated", instant(c.UpdatedAt, ""))
	fmt.Fprintln(table, "\nSECRET\tCREATED\tEXPIRES\tLAST USED")
	for _, s := range c.Secrets {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.ID, instant(s.CreatedAt, "-"), instant(s.ExpiresAt, "never"), instant(s.LastUsedAt, "never"))
	}
	return table.Flush()
}

// creation is what "client create" sends.
type creation struct {
	ID         string   `json:"client_id"`
	Name       string   `json:"client_name,omitempty"`
	Scope      string   `json:"scope"`
	Audiences  []string `json:"audiences,omitempty"`
	TokenTTL   int64    `json:"token_ttl,omitempty"`
	Rate       string   `json:"rate,omitempty"`
	Introspect string   `json:"introspect,omitempty"`
	Disabled   bool     `json:"disabled,omitempty"`
	Expires    int64    `json:"client_secret_expires_in,omitempty"`
}

func runClientCreate(ctx context.Context, p *Process, args []string) error {
	var wanted creation
	var audiences words
	var ttl, expires time.Duration
	var quiet bool
	define := func(flags *flag.FlagSet) {
		flags.StringVar(&wanted.Name, "name", "", "`name` for people")
		flags.StringVar(&wanted.Scope, "scope", "", "scopes the client may be granted, `\"a b\"`")
		flags.Var(&audiences, "audience", "resource `URI` the client may get tokens for; may be repeated")
		flags.DurationVar(&ttl, "ttl", 0, "lifetime of the client's tokens (default: that of the gateway)")
		flags.StringVar(&wanted.Rate, "rate", "", "token requests the client may make, like `100/s` (default: no limit)")
		flags.StringVar(&wanted.Introspect, "introspect", "none", "tokens the client may look into: none, audience or any")
		flags.BoolVar(&wanted.Disabled, "disabled", false, "make it disabled")
		flags.DurationVar(&expires, "expires", 0, "`time` after which the secret is no longer good (default: never)")
		flags.BoolVar(&quiet, "quiet", false, "for scripts: print only the secret")
	}
	c, id, asJSON, err := clientCommand(ctx, p, "client create", args, define, func() error {
		return checkCreation(wanted, audiences, ttl, expires)
	})
	if err != nil {
		return err
	}
	wanted.ID, wanted.Audiences = id, audiences
	wanted.TokenTTL, wanted.Expires = int64(ttl/time.Second), int64(expires/time.Second)
	var made struct {
		shownClient
		newSecret
		IssuedAt int64 `json:"client_id_issued_at"`
	}
	if _, err := c.call(ctx, http.MethodPost, "/clients", "", wanted, &made); err != nil {
		return err
	}
	switch {
	case quiet:
		fmt.Fprintln(p.Stdout, made.Secret)
	case asJSON:
		return printJSON(p, made)
	default:
		printSecret(p, made.ID, made.newSecret)
		printNote(p, made.Note)
	}
	return nil
}

// checkCreation returns the faults that can be found without the gateway.
func checkCreation(wanted creation, audiences words, ttl, expires time.Duration) error {
	var faults []error
	if _, err := parseScope(wanted.Scope); err != nil {
		faults = append(faults, err)
	}
	for _, audience := range audiences {
		if !clients.ValidAudience(audience) {
			faults = append(faults, fmt.Errorf("-audience %q: needs an absolute URI without a fragment", audience))
		}
	}
	faults = append(faults, wholeSeconds("ttl", ttl), wholeSeconds("expires", expires))
	if wanted.Rate != "" {
		if _, err := limit.ParseRate(wanted.Rate); err != nil {
			faults = append(faults, fmt.Errorf("-rate: %w", err))
		}
	}
	if _, err := clients.ParseIntrospection(wanted.Introspect); err != nil {
		faults = append(faults, fmt.Errorf("-introspect %q: %w", wanted.Introspect, err))
	}
	return errors.Join(faults...)
}

// wholeSeconds refuses a duration that the API cannot express.
func wholeSeconds(name string, d time.Duration) error {
	if d < 0 || d%time.Second != 0 {
		return fmt.Errorf("-%s %s: needs to be positive and whole seconds", name, d)
	}
	return nil
}

// printSecret shows a secret, once.
func printSecret(p *Process, id string, s newSecret) {
	fmt.Fprintf(p.Stdout, "client_id:     %s\nclient_secret: %s\n\nThe secret is shown this once and stored nowhere.\n", id, s.Secret)
	if s.ExpiresAt > 0 {
		fmt.Fprintf(p.Stdout, "It is good until %s.\n", time.Unix(s.ExpiresAt, 0).UTC().Format(time.RFC3339))
	}
}

// printNote shows the note about the effects of a change.
func printNote(p *Process, note string) {
	if note != "" {
		fmt.Fprintln(p.Stdout, note)
	}
}

func runClientRotate(ctx context.Context, p *Process, args []string) error {
	var overlap, expires time.Duration
	var removeOld, quiet bool
	define := func(flags *flag.FlagSet) {
		flags.DurationVar(&overlap, "overlap", 24*time.Hour, "`time` for which the old secrets stay good at most")
		flags.BoolVar(&removeOld, "remove-old", false, "remove the old secrets at once")
		flags.DurationVar(&expires, "expires", 0, "`time` after which the new secret is no longer good (default: never)")
		flags.BoolVar(&quiet, "quiet", false, "for scripts: print only the secret")
	}
	c, id, asJSON, err := clientCommand(ctx, p, "client rotate", args, define, func() error {
		return errors.Join(wholeSeconds("overlap", overlap), wholeSeconds("expires", expires))
	})
	if err != nil {
		return err
	}
	if removeOld {
		overlap = 0
	}
	wanted := struct {
		Expires      int64 `json:"expires_in,omitempty"`
		OthersExpire int64 `json:"others_expire_in"`
	}{int64(expires / time.Second), int64(overlap / time.Second)}
	var made struct {
		ID string `json:"id"`
		newSecret
		ClientID string `json:"client_id"`
		Note     string `json:"note,omitempty"`
	}
	if _, err := c.call(ctx, http.MethodPost, clientPath(id)+"/secrets", "", wanted, &made); err != nil {
		return err
	}
	switch {
	case quiet:
		fmt.Fprintln(p.Stdout, made.Secret)
		return nil
	case asJSON:
		return printJSON(p, made)
	}
	printSecret(p, id, made.newSecret)
	if removeOld || overlap == 0 {
		fmt.Fprintln(p.Stdout, "The old secrets are removed.")
	} else {
		fmt.Fprintf(p.Stdout, "The old secrets are good for %s more at most.\n", overlap)
	}
	printNote(p, made.Note)
	return nil
}

func runClientDisable(ctx context.Context, p *Process, args []string) error {
	return setDisabled(ctx, p, "client disable", args, true)
}

func runClientEnable(ctx context.Context, p *Process, args []string) error {
	return setDisabled(ctx, p, "client enable", args, false)
}

func setDisabled(ctx context.Context, p *Process, name string, args []string, disabled bool) error {
	c, id, asJSON, err := clientCommand(ctx, p, name, args, nil, nil)
	if err != nil {
		return err
	}
	client, err := c.setDisabled(ctx, id, disabled)
	if hasStatus(err, http.StatusPreconditionFailed) {
		// Another operator changed the client between the read and the write. Disabling it does not
		// depend on that change.
		client, err = c.setDisabled(ctx, id, disabled)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(p, client)
	}
	fmt.Fprintf(p.Stdout, "%s is %s\n", id, stateOf(client))
	printNote(p, client.Note)
	return nil
}

func (c *adminClient) setDisabled(ctx context.Context, id string, disabled bool) (shownClient, error) {
	// Members that this program does not know are sent back unchanged.
	var client map[string]any
	tag, err := c.show(ctx, id, &client)
	if err != nil {
		return shownClient{}, err
	}
	client["disabled"] = disabled
	var changed shownClient
	_, err = c.call(ctx, http.MethodPut, clientPath(id), tag, client, &changed)
	return changed, err
}

func runClientDelete(ctx context.Context, p *Process, args []string) error {
	c, id, asJSON, err := clientCommand(ctx, p, "client delete", args, nil, nil)
	if err != nil {
		return err
	}
	tag, err := c.show(ctx, id, nil)
	if err != nil {
		return err
	}
	if _, err := c.call(ctx, http.MethodDelete, clientPath(id), tag, nil, nil); err != nil {
		return err
	}
	if asJSON {
		return printJSON(p, map[string]string{"deleted": id})
	}
	fmt.Fprintf(p.Stdout, "%s is deleted, and its live tokens with it\n", id)
	return nil
}
