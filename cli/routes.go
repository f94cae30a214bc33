package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
	"unicode"

	"snowgate/handlers/admin"
)

// shownRoutes is what the admin API answers about routes.
type shownRoutes struct {
	Routes    []admin.Route    `json:"routes"`
	Discovery *admin.Discovery `json:"discovery,omitempty"`
}

// runRoutes lists the routes in force, their replicas, and what was found and is not in force.
func runRoutes(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("routes")
	shared := addAdminFlags(p, flags)
	rejected := flags.Bool("rejected", false, "only containers and routes of labels that are not in force, and why; exit 1 if there are any")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	c, err := shared.connect(ctx, p)
	if err != nil {
		return err
	}
	var found shownRoutes
	if _, err := c.call(ctx, http.MethodGet, "/routes", "", nil, &found); err != nil {
		return err
	}
	if *shared.output == "json" {
		return printJSON(p, found)
	}
	if !*rejected {
		if err := printRoutes(p, found.Routes); err != nil {
			return err
		}
	}
	switch left, err := printLeftOut(p, found.Discovery, !*rejected); {
	case err != nil:
		return err
	case *rejected && found.Discovery == nil:
		return errors.New("no routes are discovered: SNOWGATE_DOCKER_HOST of the gateway is not set")
	case *rejected && left:
		return errQuiet
	}
	return nil
}

func printRoutes(p *Process, routes []admin.Route) error {
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROUTE\tSOURCE\tHOST\tPATH\tNEEDS\tREPLICAS")
	for _, r := range routes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(r.Name), printable(cmp.Or(r.Owner, r.Source)), printable(cmp.Or(r.Host, "any")),
			printable(r.Path), needs(r), printable(replicas(r)))
	}
	return table.Flush()
}

// printable returns text without control characters, because anybody who starts containers chooses
// their labels.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// needs returns what r requires of a caller, as a text: its scopes, a token, or nothing.
func needs(r admin.Route) string {
	switch {
	case r.Public:
		return "nothing"
	case len(r.Scopes) == 0:
		return "a token"
	}
	return strings.Join(r.Scopes, " ")
}

// replicas says how many replicas of r get requests, and why the others do not.
func replicas(r admin.Route) string {
	healthy, reason := 0, ""
	for _, one := range r.Replicas {
		if one.Healthy {
			healthy++
		} else if reason == "" {
			reason = "; " + one.Address + ": " + one.Reason
		}
	}
	switch {
	case len(r.Upstreams) == 0 && len(r.Replicas) == 0 && r.Owner == "":
		return "forward-auth only"
	case len(r.Replicas) == 0 && r.Owner == "":
		return "not looked up yet"
	}
	return fmt.Sprintf("%d of %d%s", healthy, len(r.Replicas), reason)
}

// printLeftOut lists the containers that do not serve and the routes that are in the way of others,
// with the reasons. It reports whether there are any. all includes those that only wait.
func printLeftOut(p *Process, d *admin.Discovery, all bool) (found bool, err error) {
	if d == nil {
		return false, nil
	}
	if !d.Up {
		fmt.Fprintf(p.Stdout, "Docker cannot be reached: %s\n", cmp.Or(d.Error, "it was not asked yet"))
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	row := func(name, owner, state, reason string) {
		if !found {
			fmt.Fprintln(table, "LEFT OUT\tOWNER\tSTATE\tREASON")
		}
		found = true
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", printable(name), printable(owner), state, printable(reason))
	}
	for _, c := range d.Containers {
		if c.State == "rejected" || all && c.State == "waiting" {
			row(c.Name, c.Owner, c.State, c.Reason)
		}
	}
	for _, r := range d.Refused {
		row("route "+r.Name, r.Owner, "refused", r.Reason)
	}
	return found, table.Flush()
}
