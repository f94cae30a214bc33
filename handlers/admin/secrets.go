package admin

import (
	"net/http"
	"net/url"
	"time"

	"snowgate/clients"
	"snowgate/handlers"
)

// createdSecret is the response to a new secret, which is shown only now.
type createdSecret struct {
	clients.SecretView
	Client    string `json:"client_id"`
	Secret    string `json:"client_secret"`
	ExpiresAt int64  `json:"client_secret_expires_at"` // Unix seconds; 0: never
	Note      string `json:"note,omitempty"`
}

// listSecrets lists the secrets of a client, and when each was last used.
func (a *API) listSecrets(w http.ResponseWriter, r *http.Request) error {
	client, err := a.load(r)
	if err != nil {
		return err
	}
	used, err := a.Store.LastUsed(r.Context(), client)
	if err != nil {
		return refuse(err)
	}
	return handlers.WriteJSON(w, http.StatusOK, struct {
		Secrets []clients.SecretView `json:"secrets"`
	}{present(client.View(used).Secrets)})
}

// addSecret adds a secret to a client. In the same step it may set an expiry for the other secrets,
// so a rotation leaves no gap.
func (a *API) addSecret(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action, c.target = "client.secret.add", auditedID(r)
	revision, err := expected(r.Header)
	if err != nil {
		return err
	}
	o, err := readOptional(w, r)
	if err != nil {
		return err
	}
	expires := a.expiry(o, "expires_in", "expires_at")
	var othersEnd time.Time
	if in, given := o.seconds("others_expire_in", 0); given {
		othersEnd = a.Now().Add(in)
	}
	c.reason = o.reason()
	if err := o.check(); err != nil {
		return err
	}
	plain, credential := clients.Issue("", a.Now(), expires)
	done, err := a.Store.AddSecret(r.Context(), r.PathValue("id"), credential, othersEnd, revision)
	if err != nil {
		return refuse(err)
	}
	c.changed(done)
	id := done.After.ID
	w.Header().Set("Location", clientPath(id)+"/secrets/"+url.PathEscape(done.Secret.ID))
	setETag(w.Header(), done.After)
	return handlers.WriteJSON(w, http.StatusCreated, createdSecret{
		SecretView: viewOf(done.After, done.Secret.ID), Client: id,
		Secret: plain.Reveal(), ExpiresAt: unixOrZero(done.Secret.ExpiresAt), Note: done.Note,
	})
}

// changed records the change that the store made.
func (c *change) changed(done clients.Change) {
	if done.Before != nil {
		c.before = done.Before.View(nil)
	}
	if done.After != nil {
		c.after = done.After.View(nil)
	}
}

// viewOf returns the view of one secret.
func viewOf(c *clients.Client, id string) clients.SecretView {
	for _, view := range c.View(nil).Secrets {
		if view.ID == id {
			return view
		}
	}
	return clients.SecretView{ID: id}
}

// removeSecret removes a secret of a client. Tokens issued with the secret stay valid.
func (a *API) removeSecret(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action, c.target = "client.secret.remove", auditedID(r)
	revision, err := expected(r.Header)
	if err != nil {
		return err
	}
	done, err := a.Store.RemoveSecret(r.Context(), r.PathValue("id"), r.PathValue("secret"), revision)
	if err != nil {
		return refuse(err)
	}
	c.changed(done)
	if done.After != nil {
		setETag(w.Header(), done.After)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
