package cli

import (
	"context"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"
)

// shownKey is a tag key as the admin API tells it.
type shownKey struct {
	StartsAt *time.Time `json:"starts_at,omitempty"`
	State    string     `json:"state"`
}

func runKeyList(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("key list")
	shared := addAdminFlags(p, flags)
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	c, err := shared.connect(ctx, p)
	if err != nil {
		return err
	}
	var list struct {
		Keys []shownKey `json:"keys"`
	}
	if _, err := c.call(ctx, http.MethodGet, "/keys", "", nil, &list); err != nil {
		return err
	}
	if *shared.output == "json" {
		return printJSON(p, list.Keys)
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STARTS\tSTATE")
	for _, key := range list.Keys {
		fmt.Fprintf(table, "%s\t%s\n", instant(key.StartsAt, "with the deployment"), key.State)
	}
	return table.Flush()
}

func runKeyRotate(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("key rotate")
	shared := addAdminFlags(p, flags)
	reason := flags.String("reason", "", "`text` for the audit line")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	c, err := shared.connect(ctx, p)
	if err != nil {
		return err
	}
	wanted := struct {
		Reason string `json:"reason,omitempty"`
	}{*reason}
	var made shownKey
	if _, err := c.call(ctx, http.MethodPost, "/keys", "", wanted, &made); err != nil {
		return err
	}
	if *shared.output == "json" {
		return printJSON(p, made)
	}
	fmt.Fprintf(p.Stdout, "a new tag key starts at %s\nTokens under the old one stay valid as long as they live.\n", instant(made.StartsAt, "once"))
	return nil
}
