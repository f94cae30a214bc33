package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"snowgate/clients"
	"snowgate/idgen"
)

// revocationRequest is what "revoke" sends: exactly one of token, client,
// before, and worker with from and until.
type revocationRequest struct {
	Token  string `json:"token,omitempty"`
	Client string `json:"client,omitempty"`
	Worker *int64 `json:"worker,omitempty"`
	// Datacenter makes Worker the number within it.
	Datacenter *int64 `json:"datacenter,omitempty"`
	From       string `json:"from,omitempty"`
	Until      string `json:"until,omitempty"`
	Before     string `json:"before,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

func runRevoke(ctx context.Context, p *Process, args []string) error {
	var wanted revocationRequest
	flags := newFlags("revoke")
	shared := addAdminFlags(p, flags)
	flags.StringVar(&wanted.Token, "token", "", "revoke one token, by its `ID`: the 11 characters behind sgt_")
	flags.StringVar(&wanted.Client, "client", "", "revoke everything that the client `ID` has")
	worker := flags.Int64("worker", -1, "revoke what the worker `N` issued between -from and -until")
	datacenter := flags.Int64("datacenter", -1, "count -worker within the datacenter `N`, where the layout of ids has that field")
	flags.StringVar(&wanted.From, "from", "", "first `instant` for -worker, like 2026-01-31T12:00:00Z")
	flags.StringVar(&wanted.Until, "until", "", "`instant` for -worker that is no longer meant")
	flags.StringVar(&wanted.Before, "before", "", "revoke everything that was issued before this `instant`")
	dry := flags.Bool("dry-run", false, "revoke nothing; say how many live tokens it would concern")
	within := flags.Duration("count-timeout", time.Minute, "how `long` to count the live tokens that a rule covers; 0: do not count")
	force := flags.Bool("force", false, "revoke also a client, token or worker that the gateway does not know")
	flags.StringVar(&wanted.Reason, "reason", "", "`text` for the audit line and the list of rules")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	if *worker >= 0 {
		wanted.Worker = worker
	}
	if *datacenter >= 0 {
		wanted.Datacenter = datacenter
	}
	c, err := shared.connect(ctx, p, checkRevocation(wanted), checkCount(wanted, *dry, *within))
	if err != nil {
		return err
	}
	if *dry {
		return c.dryRun(ctx, p, wanted, *within, *shared.output)
	}
	if !*force {
		if err := c.checkKnown(ctx, wanted, *within); err != nil {
			return err
		}
	}
	var made revocationMade
	if _, err := c.call(ctx, http.MethodPost, "/revocations", "", wanted, &made); err != nil {
		return err
	}
	return reportRevocation(ctx, p, shared, wanted, &made, *within)
}

// reportRevocation says what was revoked, and counts the live tokens that it covers for the time given.
func reportRevocation(ctx context.Context, p *Process, shared *adminFlags, wanted revocationRequest, made *revocationMade, within time.Duration) error {
	if *shared.output != "json" {
		fmt.Fprintf(p.Stdout, "revoked: %s\n", made.ID)
		if made.EndsAt != nil {
			fmt.Fprintf(p.Stdout, "The rule ends by itself at %s, when nothing that it matches can be alive.\n", instant(made.EndsAt, ""))
		}
	}
	if wanted.countable() && within > 0 {
		// The rule may have revoked the token that it was written with.
		c, err := shared.connect(ctx, p)
		if err != nil {
			return err
		}
		c.countMade(ctx, p, wanted, made, within)
	}
	if *shared.output == "json" {
		return printJSON(p, *made)
	}
	if made.Count != nil {
		fmt.Fprintf(p.Stdout, "It covers %s.\n", made.Count)
	}
	return nil
}

// revocationMade is what the admin API answers.
type revocationMade struct {
	revocationRequest
	ID     string           `json:"id"`
	Kind   string           `json:"kind"`
	EndsAt *time.Time       `json:"ends_at,omitempty"`
	By     string           `json:"by,omitempty"`
	Count  *revocationCount `json:"count,omitempty"`
}

// checkRevocation tells everything that is wrong with the flags.
func checkRevocation(r revocationRequest) error {
	var faults []error
	kinds := 0
	for _, given := range []bool{r.Token != "", r.Client != "", r.Worker != nil, r.Before != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		faults = append(faults, errors.New("needs exactly one of -token, -client, -worker and -before"))
	}
	if r.Token != "" {
		if _, err := idgen.Parse(r.Token); err != nil {
			// The error does not repeat it: it may be a whole token.
			faults = append(faults, errors.New("-token: needs to be a token id, the 11 characters behind sgt_"))
		}
	}
	if r.Client != "" && !clients.ValidID(r.Client) {
		faults = append(faults, fmt.Errorf("-client %q: %s", r.Client, idWanted))
	}
	interval := r.From != "" || r.Until != ""
	if r.Worker != nil && (r.From == "" || r.Until == "") {
		faults = append(faults, errors.New("-worker: needs -from and -until"))
	}
	if r.Datacenter != nil && r.Worker == nil {
		faults = append(faults, errors.New("-datacenter: needs -worker"))
	}
	if r.Worker == nil && interval {
		faults = append(faults, errors.New("-from and -until: need -worker"))
	}
	return errors.Join(append(faults, checkInstant("from", r.From), checkInstant("until", r.Until), checkInstant("before", r.Before))...)
}

func checkInstant(name, text string) error {
	if text == "" {
		return nil
	}
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return fmt.Errorf("-%s %q: needs to be an instant like 2026-01-31T12:00:00Z (RFC 3339)", name, text)
	}
	return nil
}
