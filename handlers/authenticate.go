package handlers

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"snowgate/clients"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// credentials are the id and secret that a client sends (RFC 6749 §2.3.1).
type credentials struct {
	id, secret string
}

// authenticate reads the form of r and finds the client that sent it, by client_secret_basic or
// client_secret_post. Wrong credentials match clients.ErrUnauthenticated, unless there were too
// many failures.
func (h *OAuth) authenticate(r *http.Request) (*clients.Client, form, error) {
	f, err := readForm(r)
	if err != nil {
		return nil, nil, err
	}
	shown, err := readCredentials(r.Header, f)
	if err != nil {
		return nil, nil, h.refuse(r, shown.id, err)
	}
	client, err := h.Clients.Authenticate(shown.id, shown.secret, h.Now())
	if err != nil {
		return nil, nil, h.refuse(r, shown.id, err)
	}
	exchange.From(r.Context()).Client = client.ID
	return client, f, nil
}

// readCredentials reads the credentials from the Authorization line or from the body, but not from
// both (RFC 6749 §2.3: not more than one method in each request).
func readCredentials(header http.Header, f form) (credentials, error) {
	lines := header.Values("Authorization")
	posted := credentials{f.get("client_id"), f.get("client_secret")}
	switch {
	case len(lines) == 0:
		return posted, nil // empty credentials fail like wrong ones
	case len(lines) > 1:
		return credentials{}, problem.InvalidRequest("The request has more than one Authorization line.")
	case posted.secret != "":
		return credentials{}, problem.InvalidRequest("The client authenticates in more than one way.")
	}
	basic, err := parseBasic(lines[0])
	if err != nil {
		return credentials{}, err
	}
	if posted.id != "" && posted.id != basic.id {
		return credentials{}, problem.InvalidRequest("The client_id differs from the one in the Authorization line.")
	}
	return basic, nil
}

// parseBasic reads the credentials of RFC 7617. RFC 6749 §2.3.1 requires form-encoding of both
// halves, which many clients omit. Ids and secrets of the gateway have only characters that encode
// as themselves, so both forms work.
func parseBasic(line string) (credentials, error) {
	scheme, encoded, _ := strings.Cut(line, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return credentials{}, fmt.Errorf("%w: another scheme than Basic", clients.ErrUnauthenticated)
	}
	text, err := base64.StdEncoding.Strict().DecodeString(strings.TrimLeft(encoded, " "))
	if err != nil {
		return credentials{}, fmt.Errorf("%w: Basic credentials are not base64", clients.ErrUnauthenticated)
	}
	id, secret, ok := strings.Cut(string(text), ":")
	if !ok {
		return credentials{}, fmt.Errorf("%w: Basic credentials without a colon", clients.ErrUnauthenticated)
	}
	return credentials{unescape(id), unescape(secret)}, nil
}

// unescape undoes form-encoding if text has any.
func unescape(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}
