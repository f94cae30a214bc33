package admin

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/tokens"
)

// revocationDocument is the JSON form of one rule. Its kind determines its members.
type revocationDocument struct {
	ID         string     `json:"id"`
	Kind       string     `json:"kind"` // token, client, worker or before
	Token      string     `json:"token,omitempty"`
	Client     string     `json:"client,omitempty"`
	Generation uint64     `json:"generation,omitempty"` // of the client's tokens that remain valid
	Worker     *int64     `json:"worker,omitempty"`
	From       *time.Time `json:"from,omitempty"`
	Until      *time.Time `json:"until,omitempty"`
	Before     *time.Time `json:"before,omitempty"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	EndsAt     *time.Time `json:"ends_at,omitempty"` // everything that the rule matches has expired by then
	By         string     `json:"by,omitempty"`
	Reason     string     `json:"reason,omitempty"`

	Count *countDocument `json:"count,omitempty"` // of a dry run
}

// countDocument is the number of live tokens that a rule covers, as far as one request has counted.
type countDocument struct {
	LiveTokens int    `json:"live_tokens"`
	Seen       int    `json:"seen"`
	Next       string `json:"next,omitempty"` // the cursor for the next request
}

func documentOfRule(r tokens.Rule) revocationDocument {
	d := revocationDocument{
		ID: r.ID, Kind: string(r.Kind), CreatedAt: optionalTime(r.Created), EndsAt: optionalTime(r.End), By: r.By, Reason: r.Why,
	}
	switch r.Kind {
	case tokens.RuleClient:
		d.Client, d.Generation = r.Client, r.Generation
	case tokens.RuleWorker:
		d.Worker, d.From, d.Until = &r.Worker, optionalTime(r.From), optionalTime(r.Until)
	case tokens.RuleBefore:
		d.Before = optionalTime(r.Until)
	default: // written by a newer version
		d.From, d.Until = optionalTime(r.From), optionalTime(r.Until)
	}
	return d
}

// listRevocations lists the rules that this gateway holds, the newest first.
func (a *API) listRevocations(w http.ResponseWriter, _ *http.Request) error {
	set := a.Rules.Revocations()
	list := make([]revocationDocument, 0, len(set.Rules))
	slices.SortFunc(set.Rules, func(a, b tokens.Rule) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	for _, rule := range set.Rules {
		list = append(list, documentOfRule(rule))
	}
	return handlers.WriteJSON(w, http.StatusOK, struct {
		Revision    uint64               `json:"revision"`
		Revocations []revocationDocument `json:"revocations"`
	}{set.Revision, list})
}

// postRevocation counts if the query asks for a dry run, and revokes otherwise. It refuses all
// other parameters, because a mistyped dry run must not revoke.
func (a *API) postRevocation(w http.ResponseWriter, r *http.Request) error {
	var faults []problem.Fault
	query := r.URL.Query()
	for name, values := range query {
		if name != "dry_run" && name != "cursor" || len(values) != 1 {
			faults = append(faults, problem.Fault{Detail: "the parameters are dry_run and cursor, each once at most"})
		}
	}
	if query.Has("dry_run") && query.Get("dry_run") != "true" && query.Get("dry_run") != "false" {
		faults = append(faults, problem.Fault{Detail: "dry_run needs to be true or false"})
	}
	dry := query.Get("dry_run") == "true"
	if query.Has("cursor") && !dry {
		faults = append(faults, problem.Fault{Detail: "cursor needs dry_run=true"})
	}
	switch {
	case len(faults) > 0:
		return &problem.Error{Status: http.StatusBadRequest, Detail: "The query has faults.", Faults: faults}
	case dry:
		return a.countRevocation(w, r, query.Get("cursor"))
	}
	return a.audited(a.createRevocation)(w, r)
}

// countRevocation counts the live tokens that a revocation would cover. It changes nothing and
// leaves no audit line.
func (a *API) countRevocation(w http.ResponseWriter, r *http.Request, cursor string) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	wanted := a.readRevocation(o)
	if err := o.check(); err != nil {
		return err
	}
	if wanted.single {
		return a.countOne(w, r, wanted)
	}
	if wanted.rule.Kind == tokens.RuleClient {
		o.fault("client", "ids do not tell the client, so its tokens cannot be counted by a dry run")
		return o.check()
	}
	if err := wanted.rule.Check(a.Now()); err != nil {
		return refuseRule(wanted.rule.Kind, err)
	}
	found, err := a.Rules.CountRule(r.Context(), wanted.rule, cursor)
	switch {
	case errors.Is(err, tokens.ErrCursor):
		return problem.New(http.StatusBadRequest, "The cursor is not one that a dry run returned.", err)
	case err != nil:
		return unavailable(err)
	}
	d := documentOfRule(wanted.rule)
	d.Count = &countDocument{LiveTokens: found.Tokens, Seen: found.Seen, Next: found.Next}
	return handlers.WriteJSON(w, http.StatusOK, d)
}

// countOne reports whether the token to be revoked is valid now.
func (a *API) countOne(w http.ResponseWriter, r *http.Request, wanted revocation) error {
	count := &countDocument{Seen: 1}
	switch _, err := a.Tokens.Lookup(r.Context(), wanted.token); {
	case err == nil:
		count.LiveTokens = 1
	case !errors.Is(err, tokens.ErrInvalid) && !errors.Is(err, tokens.ErrUnknown):
		return unavailable(err)
	}
	return handlers.WriteJSON(w, http.StatusOK, revocationDocument{
		ID: "token-" + wanted.token.String(), Kind: "token", Token: wanted.token.String(), Count: count,
	})
}

// createRevocation revokes one token, or adds one rule.
func (a *API) createRevocation(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action = "revocation.create"
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	wanted := a.readRevocation(o)
	c.reason = wanted.rule.Why
	if err := o.check(); err != nil {
		return err
	}
	if wanted.single {
		return a.revokeOne(w, r, c, wanted)
	}
	wanted.rule.By = exchange.From(r.Context()).Client
	c.target = wanted.rule.ID
	rule, err := a.Rules.AddRule(r.Context(), wanted.rule)
	if err != nil {
		return refuseRule(wanted.rule.Kind, err)
	}
	// The store may drop both fields for a client.
	rule.By, rule.Why = cmp.Or(rule.By, wanted.rule.By), cmp.Or(rule.Why, wanted.rule.Why)
	d := documentOfRule(rule)
	c.after = d
	return handlers.WriteJSON(w, http.StatusCreated, d)
}

// revokeOne deletes the record of a token. It leaves no rule behind.
func (a *API) revokeOne(w http.ResponseWriter, r *http.Request, c *change, wanted revocation) error {
	c.target = "token-" + wanted.token.String()
	if err := a.Tokens.RevokeID(r.Context(), wanted.token); err != nil {
		return unavailable(err)
	}
	return handlers.WriteJSON(w, http.StatusOK, revocationDocument{
		ID: c.target, Kind: "token", Token: wanted.token.String(), By: exchange.From(r.Context()).Client, Reason: c.reason,
	})
}

// refuseRule turns the refusals of a rule into responses. The clock that judges the
// instants is the store's.
func refuseRule(kind tokens.RuleKind, err error) error {
	switch {
	case errors.Is(err, tokens.ErrRuleInFuture):
		member := "before"
		if kind == tokens.RuleWorker {
			member = "until"
		}
		return &problem.Error{
			Status: http.StatusUnprocessableEntity,
			Detail: "A revocation cannot reach into the future: what is issued later cannot be revoked now.",
			Faults: []problem.Fault{{Pointer: pointer(member), Detail: "is later than the clock of Redis"}},
			Err:    err,
		}
	case errors.Is(err, tokens.ErrRule):
		return problem.New(http.StatusUnprocessableEntity, "The revocation is not valid.", err)
	default:
		return unavailable(err)
	}
}

// revocation is the request of a caller: a rule, or a single token.
type revocation struct {
	single bool
	token  idgen.ID
	rule   tokens.Rule
}

// readRevocation reads exactly one of token, client, before, and worker with from and until.
func (a *API) readRevocation(o *object) revocation {
	var wanted revocation
	var kinds []string
	for _, kind := range []string{"token", "client", "before", "worker"} {
		if o.has(kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) != 1 {
		o.faults = append(o.faults, problem.Fault{Detail: "needs exactly one of token, client, before and worker"})
		for _, member := range []string{"token", "client", "before", "worker", "datacenter", "from", "until"} {
			delete(o.members, member)
		}
		o.reason()
		return wanted
	}
	switch kinds[0] {
	case "token":
		wanted.single, wanted.token = true, o.tokenID()
	case "client":
		wanted.rule = tokens.ClientRule(o.clientID("client"))
	case "before":
		wanted.rule = tokens.BeforeRule(o.instant("before"))
	case "worker":
		wanted.rule = a.readWorkerRule(o)
	}
	wanted.rule.Why = o.reason()
	return wanted
}

func (o *object) tokenID() idgen.ID {
	id, err := idgen.Parse(o.text("token"))
	if err != nil {
		o.fault("token", "needs to be a token id: 11 characters of 0-9A-Za-z, the part of the token after sgt_")
	}
	return id
}

// clientID reads the id of a client. The log shows the id, so it must hold no secret.
func (o *object) clientID(name string) string {
	id := o.text(name)
	switch {
	case looksSecret(id):
		o.fault(name, looksSecretText)
	case !clients.ValidID(id):
		o.fault(name, "needs 1 to 128 characters of A-Za-z0-9._~-")
	default:
		return id
	}
	return ""
}

// readWorker reads the number of a worker. Next to a datacenter, the number counts within the
// datacenter; otherwise it counts among all workers.
func (a *API) readWorker(o *object) int64 {
	layout := a.IDs.Scheme.Layout()
	number := func(name string, most int64) int64 {
		n, _ := o.number(name)
		if n < 0 || n > most {
			o.fault(name, "needs to be a number from 0 to %d", most)
		}
		return n
	}
	if !o.has("datacenter") {
		return number("worker", layout.Workers()-1)
	}
	if layout.Bits(idgen.FieldDatacenter) == 0 {
		o.fault("datacenter", "the layout of ids, %s, has no datacenter", layout)
	}
	return layout.WorkerIndex(idgen.Worker{
		Datacenter: number("datacenter", layout.Max(idgen.FieldDatacenter)),
		Number:     number("worker", layout.Max(idgen.FieldWorker)),
	})
}

func (a *API) readWorkerRule(o *object) tokens.Rule {
	worker := a.readWorker(o)
	for _, name := range []string{"from", "until"} {
		if !o.has(name) {
			o.fault(name, "is needed beside worker")
		}
	}
	from, until := o.instant("from"), o.instant("until")
	if !from.IsZero() && !until.IsZero() && !from.Before(until) {
		o.fault("until", "needs to be later than from")
	}
	return tokens.WorkerRule(worker, from, until)
}

// keepRevocation refuses to delete a rule. Gateways may already have cut connections and dropped
// tokens because of the rule, and the rule ends by itself.
func (a *API) keepRevocation(_ http.ResponseWriter, r *http.Request, c *change) error {
	c.action = "revocation.delete"
	rules := a.Rules.Revocations().Rules
	i := slices.IndexFunc(rules, func(rule tokens.Rule) bool { return rule.ID == r.PathValue("id") })
	if i < 0 {
		return problem.New(http.StatusNotFound, "There is no revocation with this id.", nil)
	}
	c.target = rules[i].ID
	return problem.New(http.StatusConflict,
		"Revocations cannot be undone. This one ends by itself, at "+rules[i].End.UTC().Format(time.RFC3339)+
			", when all tokens that it matches have expired. Clients can get new tokens at any time.", nil)
}
