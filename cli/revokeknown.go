package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"snowgate/config"
)

// checkKnown returns an error if the client, the token or the worker of a revocation is not one
// that the gateway knows: such a revocation would end nothing, although the output would say so. It
// looks for a token of the worker for as long as within says.
func (c *adminClient) checkKnown(ctx context.Context, wanted revocationRequest, within time.Duration) error {
	const insist = "; -force revokes it all the same"
	switch {
	case wanted.Client != "":
		_, err := c.call(ctx, http.MethodGet, clientPath(wanted.Client), "", nil, nil)
		if hasStatus(err, http.StatusNotFound) {
			return fmt.Errorf("there is no client %q%s%s", wanted.Client, c.suggestClient(ctx, wanted.Client), insist)
		}
		return err
	case wanted.Token != "":
		_, err := c.call(ctx, http.MethodGet, "/tokens/"+url.PathEscape(wanted.Token), "", nil, nil)
		if hasStatus(err, http.StatusNotFound) {
			return fmt.Errorf("there is no live token with the id %s: it may have expired, be revoked already, or be of another installation%s",
				wanted.Token, insist)
		}
		return err
	case wanted.Worker != nil && within > 0:
		if c.issuedNothing(ctx, wanted, within) {
			return fmt.Errorf("no live token was issued by worker %d in that interval: \"snowgate token inspect\" tells the worker of a token%s",
				*wanted.Worker, insist)
		}
	}
	return nil
}

// suggestClient returns the hint at a client with nearly that id, or nothing.
func (c *adminClient) suggestClient(ctx context.Context, id string) string {
	var page struct {
		Clients []shownClient `json:"clients"`
	}
	// Without the list there is no hint.
	_, _ = c.call(ctx, http.MethodGet, "/clients?limit=1000", "", nil, &page)
	var known []string
	for _, client := range page.Clients {
		known = append(known, client.ID)
	}
	return config.Suggest(id, "", known)
}

// issuedNothing reports whether a look at all tokens found none that the rule covers. It stops at
// the first one. If it cannot look to the end, for want of a right or of time, the rule is worth
// writing.
func (c *adminClient) issuedNothing(ctx context.Context, wanted revocationRequest, within time.Duration) bool {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	query := url.Values{"dry_run": {"true"}}
	for {
		var step revocationMade
		_, err := c.call(bounded, http.MethodPost, "/revocations?"+query.Encode(), "", wanted, &step)
		if err != nil || step.Count == nil || step.Count.LiveTokens > 0 {
			return false
		}
		if step.Count.Next == "" {
			return true
		}
		query.Set("cursor", step.Count.Next)
	}
}
