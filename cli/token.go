package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"snowgate/config"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/tokens"
)

// inspection is what a token or its id says about itself.
type inspection struct {
	handlers.Decoded
	Tag string `json:"tag,omitempty"` // verified, forged or unverified; empty for an id alone
}

func runTokenInspect(_ context.Context, p *Process, args []string) error {
	flags := newFlags("token inspect")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := parseFlags(p, flags, args, 1); err != nil {
		return err
	}
	// Decoding needs layout and epoch only, so faults of other variables do not matter.
	cfg, err := config.Load(onlyVariables(p.Environ, "EPOCH", "ID_LAYOUT", "TOKEN_KEY"))
	if err != nil {
		return usageError{err}
	}
	text := flags.Arg(0)
	if text == "" {
		line, err := bufio.NewReader(p.Stdin).ReadString('\n')
		if line == "" && err != nil {
			return fmt.Errorf("reading the token from standard input: %w", err)
		}
		text = strings.TrimSpace(line)
	}
	found, err := inspect(cfg, text)
	if err != nil {
		return err
	}
	return found.print(p, *asJSON)
}

// onlyVariables returns those entries of environ that set one of names, in
// themselves or as a file.
func onlyVariables(environ []string, names ...string) []string {
	var kept []string
	for _, entry := range environ {
		for _, name := range names {
			if strings.HasPrefix(entry, config.Prefix+name+"=") || strings.HasPrefix(entry, config.Prefix+name+"_FILE=") {
				kept = append(kept, entry)
			}
		}
	}
	return kept
}

// inspect decodes a token or an id; an id may also be in decimal, as databases
// show it. Its errors do not repeat the text, which may be a live token.
func inspect(cfg config.Config, text string) (inspection, error) {
	scheme, err := idgen.NewScheme(cfg.IDLayout, cfg.Epoch)
	if err != nil {
		return inspection{}, usageError{err}
	}
	var tag string
	var id idgen.ID
	if bearer, err := tokens.ParseBearer(text); err == nil {
		id, tag = bearer.ID(), inspectTag(cfg, bearer, scheme.Time(bearer.ID()))
	} else if id, err = parseAnyID(text); err != nil {
		return inspection{}, err
	}
	found, err := handlers.Decode(scheme, id)
	return inspection{found, tag}, err
}

func parseAnyID(text string) (idgen.ID, error) {
	if id, err := idgen.Parse(text); err == nil {
		return id, nil
	}
	id, err := idgen.ParseDecimal(text)
	if err != nil {
		return 0, errors.New("that is neither a token (sgt_…, 70 characters) nor an id (11 characters, or decimal)")
	}
	return id, nil
}

// inspectTag judges the tag if the key is at hand.
func inspectTag(cfg config.Config, bearer tokens.Bearer, minted time.Time) string {
	if !cfg.TokenKey.IsSet() {
		return "unverified"
	}
	if err := tokens.FixedKeyring(tokens.Key(cfg.TokenKey.Bytes())).Verify(context.Background(), bearer, minted); err != nil {
		return "forged"
	}
	return "verified"
}

func (i inspection) print(p *Process, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(p.Stdout)
		out.SetIndent("", "  ")
		return out.Encode(i)
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(table, "%s\t%v\n", name, value) }
	row("id", i.ID)
	row("decimal", i.Decimal)
	row("issued at", i.IssuedAt.Format("2006-01-02T15:04:05.000Z07:00"))
	row("worker", i.Worker)
	if i.Datacenter != nil {
		row("datacenter", *i.Datacenter)
		row("worker in it", *i.WorkerInDatacenter)
	}
	if i.Rollback != nil {
		row("rollback", *i.Rollback)
	}
	row("sequence", i.Sequence)
	if i.Tag != "" {
		row("tag", i.Tag)
	}
	return table.Flush()
}
