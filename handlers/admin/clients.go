package admin

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/internal/problem"
)

// readOnly names the members of a client that only the server sets. A caller may send them back as
// they were read, so that it can read, edit and replace a client; their values are ignored.
var readOnly = []string{"source", "created_at", "updated_at", "secrets", "note"}

// clientDocument is the JSON form of a client, with the note of a change.
type clientDocument struct {
	clients.View
	Note string `json:"note,omitempty"`
}

// createdClient is the response to a creation: the client, and the values that are shown only now,
// under the names of RFC 7591 §3.2.1.
type createdClient struct {
	clientDocument
	Secret    string `json:"client_secret"`
	ExpiresAt int64  `json:"client_secret_expires_at"` // Unix seconds; 0: never
	IssuedAt  int64  `json:"client_id_issued_at"`      // Unix seconds
}

// createClient creates a client with one secret.
func (a *API) createClient(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action = "client.create"
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	expires := a.expiry(o, "client_secret_expires_in", "")
	if !o.has("client_id") && o.members != nil {
		o.members["client_id"], _ = json.Marshal(newClientID()) // strings always marshal
	}
	d, err := a.readDocument(o, c)
	if err != nil {
		return err
	}
	now := a.Now()
	plain, credential := clients.Issue("", now, expires)
	made, err := a.Store.Create(r.Context(), d, credential)
	if err != nil {
		return refuse(err)
	}
	view := made.After.View(nil)
	c.after = view
	w.Header().Set("Location", clientPath(d.ID))
	setETag(w.Header(), made.After)
	return handlers.WriteJSON(w, http.StatusCreated, createdClient{
		clientDocument: clientDocument{view, made.Note},
		Secret:         plain.Reveal(), ExpiresAt: unixOrZero(made.Secret.ExpiresAt), IssuedAt: now.Unix(),
	})
}

// readClient shows one client. listSecrets shows when the secrets were last used: that time changes
// without a change of the client, so the entity tag could not cover it.
func (a *API) readClient(w http.ResponseWriter, r *http.Request) error {
	client, err := a.load(r)
	if err != nil {
		return err
	}
	setETag(w.Header(), client)
	if notModified(r.Header, etag(client)) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return handlers.WriteJSON(w, http.StatusOK, client.View(nil))
}

// replaceClient replaces the document of a client. The secrets of the client stay.
func (a *API) replaceClient(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action, c.target = "client.update", auditedID(r)
	revision, err := required(r.Header)
	if err != nil {
		return err
	}
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	for _, name := range readOnly {
		delete(o.members, name)
	}
	d, err := a.readDocument(o, c)
	if err != nil {
		return err
	}
	if d.ID != r.PathValue("id") {
		c.target = auditedID(r)
		o.fault("client_id", "differs from the id in the path; a client cannot be renamed")
		return o.check()
	}
	done, err := a.Store.Update(r.Context(), d, revision)
	if err != nil {
		return refuse(err)
	}
	c.action = updateAction(done)
	c.before, c.after = done.Before.View(nil), done.After.View(nil)
	setETag(w.Header(), done.After)
	return handlers.WriteJSON(w, http.StatusOK, clientDocument{done.After.View(nil), done.Note})
}

// updateAction returns the audit action of an update.
func updateAction(done clients.Change) string {
	switch {
	case done.After.Disabled && !done.Before.Disabled:
		return "client.disable"
	case !done.After.Disabled && done.Before.Disabled:
		return "client.enable"
	default:
		return "client.update"
	}
}

// deleteClient removes a client. Its live tokens stop working.
func (a *API) deleteClient(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action, c.target = "client.delete", auditedID(r)
	revision, err := required(r.Header)
	if err != nil {
		return err
	}
	done, err := a.Store.Delete(r.Context(), r.PathValue("id"), revision)
	if err != nil {
		return refuse(err)
	}
	if done.Before != nil { // nil if the client was deleted before
		c.before = done.Before.View(nil)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// load returns the client in the path. Configured clients win over stored clients with the same id,
// as everywhere.
func (a *API) load(r *http.Request) (*clients.Client, error) {
	id := r.PathValue("id")
	if c := a.Clients.Lookup(id); c != nil && c.Source != clients.SourceRegistry {
		return c, nil
	}
	if !clients.ValidID(id) {
		return nil, refuse(clients.ErrNotFound)
	}
	c, err := a.Store.Load(r.Context(), id)
	if err != nil {
		return nil, refuse(err)
	}
	return c, nil
}

// readDocument reads the rest of o as the document of a client. Its error includes the faults found
// before.
func (a *API) readDocument(o *object, c *change) (clients.Document, error) {
	text, err := json.Marshal(o.members)
	if err != nil {
		return clients.Document{}, err
	}
	o.members = nil
	d, err := clients.DecodeDocument(text, a.MaxTTL)
	var faults clients.DocumentError
	switch {
	case errors.As(err, &faults):
		for _, f := range faults {
			o.faults = append(o.faults, problem.Fault{Pointer: f.Pointer, Detail: f.Detail})
		}
	case err != nil:
		return clients.Document{}, err
	}
	if len(o.faults) == 0 {
		c.target = d.ID
	}
	return d, invalid(o.faults)
}

// expiry reads the expiry of a secret: a number of seconds in the member in, or an instant in the
// member at. The zero time means never.
func (a *API) expiry(o *object, in, at string) time.Time {
	after, given := o.seconds(in, 1)
	if at == "" || !o.has(at) {
		if !given {
			return time.Time{}
		}
		return a.Now().Add(after)
	}
	end := o.instant(at)
	switch {
	case given:
		o.fault(at, "excludes %s", in)
	case !end.IsZero() && !end.After(a.Now()):
		o.fault(at, "is past")
	}
	return end
}

// refuse converts an error of the client store into a response.
func refuse(err error) error {
	refusal := func(status int, detail string) error { return problem.New(status, detail, err) }
	switch {
	case errors.Is(err, clients.ErrNotFound):
		return refusal(http.StatusNotFound, "There is no such client, or no such secret of it.")
	case errors.Is(err, clients.ErrReadOnly):
		return refusal(http.StatusConflict, "The client is in the configuration file or the environment of the gateway and is changed there.")
	case errors.Is(err, clients.ErrExists):
		return refusal(http.StatusConflict, "Another client has this id.")
	case errors.Is(err, clients.ErrTooManySecrets):
		return refusal(http.StatusConflict, "The client has as many secrets as it may: remove one first.")
	case errors.Is(err, clients.ErrConflict):
		return preconditionFailed(err)
	default:
		return unavailable(err)
	}
}

// auditedID returns the id in the path, or "" if the id must not be logged.
func auditedID(r *http.Request) string {
	id := r.PathValue("id")
	if !clients.ValidID(id) || looksSecret(id) {
		return ""
	}
	return id
}

// newClientID makes an id for a client without one: 80 random bits.
func newClientID() string { return "client-" + strings.ToLower(rand.Text()[:16]) }

// clientPath returns the path of a client on the admin listener.
func clientPath(id string) string { return Prefix + "/clients/" + url.PathEscape(id) }

func unixOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
