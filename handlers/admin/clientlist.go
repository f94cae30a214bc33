package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/internal/problem"
)

// Clients per page.
const (
	defaultPage = 100
	largestPage = 1000
)

// listing is the query for a page of the list of clients.
type listing struct {
	limit    int
	after    string // the page starts after this id
	source   string // empty: all sources
	disabled string // "true" or "false"; empty: both
}

func readListing(r *http.Request) (listing, error) {
	if err := checkQuery(r, "limit", "after", "source", "disabled"); err != nil {
		return listing{}, err
	}
	query := r.URL.Query()
	l := listing{limit: defaultPage, after: query.Get("after"), source: query.Get("source"), disabled: query.Get("disabled")}
	var faults []problem.Fault
	fault := func(name, detail string) {
		faults = append(faults, problem.Fault{Pointer: "", Detail: name + " " + detail})
	}
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > largestPage {
			fault("limit", "needs to be a number from 1 to 1000")
		}
		l.limit = n
	}
	if l.after != "" && !clients.ValidID(l.after) {
		fault("after", "needs to be the id of a client")
	}
	if !slices.Contains([]string{"", "file", "environment", "registry"}, l.source) {
		fault("source", "needs to be file, environment or registry")
	}
	if !slices.Contains([]string{"", "true", "false"}, l.disabled) {
		fault("disabled", "needs to be true or false")
	}
	if len(faults) > 0 {
		return listing{}, &problem.Error{Status: http.StatusBadRequest, Detail: "The query has faults.", Faults: faults}
	}
	return l, nil
}

func (l listing) wants(c *clients.Client) bool {
	return (l.source == "" || l.source == c.Source.String()) &&
		(l.disabled == "" || l.disabled == strconv.FormatBool(c.Disabled))
}

// next returns the query for the page after the client last.
func (l listing) next(last string) string {
	query := url.Values{"limit": {strconv.Itoa(l.limit)}, "after": {last}}
	if l.source != "" {
		query.Set("source", l.source)
	}
	if l.disabled != "" {
		query.Set("disabled", l.disabled)
	}
	return query.Encode()
}

// listClients lists clients in the order of their ids, page by page. The Link header with
// rel="next" (RFC 8288) points to the next page. Clients that are created or deleted in the
// meantime may or may not appear. No other client appears twice or is left out.
func (a *API) listClients(w http.ResponseWriter, r *http.Request) error {
	l, err := readListing(r)
	if err != nil {
		return err
	}
	if !a.Clients.Current() {
		return refuse(clients.ErrUnavailable)
	}
	page, more := a.Clients.Page(l.after, l.limit, l.wants)
	used, err := a.Store.LastUsed(r.Context(), page...)
	if err != nil {
		return refuse(err)
	}
	views := make([]clients.View, len(page))
	for i, c := range page {
		views[i] = c.View(used)
	}
	if more {
		w.Header().Set("Link", "<"+Prefix+"/clients?"+l.next(page[len(page)-1].ID)+`>; rel="next"`)
	}
	return handlers.WriteJSON(w, http.StatusOK, struct {
		Clients []clients.View `json:"clients"`
	}{views})
}
