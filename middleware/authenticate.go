package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/tokens"
)

// validator validates bearer tokens. [tokens.Service] implements it.
type validator interface {
	// ValidateFrom returns the token text, which was sent from addr. An invalid token is an error
	// that matches [tokens.ErrInvalid]. All other errors say nothing about the token.
	ValidateFrom(ctx context.Context, text string, addr netip.Addr) (tokens.Token, error)
}

// Authenticate lets a request pass if it needs no token, or if it has a token that meets the
// requirement (RFC 6750). requirement returns what a token must have for the request, and whether
// the request needs one. Authenticate checks each request anew. For the handlers behind it, the
// exchange has Token, Client and TokenID.
//
// challenge returns the fields of a refusal. The response is 401 without credentials or with
// another scheme, 400 for credentials that cannot be read, and 401 or 403 for a token that does not
// suffice. If the validator cannot decide, the response is 503 and none of these. Authenticate does
// not look at the credentials of a request that needs no token.
func Authenticate(
	v validator, challenge func(*http.Request) problem.Challenge, requirement func(*http.Request) (tokens.Requirement, bool),
) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if required, needed := requirement(r); needed {
				if err := judge(r, v, required); err != nil {
					problem.Write(w, r, refuse(challenge(r), err))
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// unread says that a request has no token that can be read.
type unread struct{ error }

// judge validates the token of r and puts it into the exchange. It returns the reason for a
// refusal.
func judge(r *http.Request, v validator, required tokens.Requirement) error {
	text, err := bearerToken(r.Header)
	if err != nil {
		return unread{err}
	}
	x := exchange.From(r.Context())
	token, err := v.ValidateFrom(r.Context(), text, x.Remote)
	if err != nil {
		x.TokenID = refusedID(text, err)
		return err
	}
	x.Client, x.TokenID = token.Client, token.ID.String() // a 403 is logged with its client
	if err := required.Check(&token); err != nil {
		return err
	}
	x.Token = token
	return nil
}

// refusedID returns the id of a refused token whose tag is genuine, and nothing for a text that
// anybody may have made up.
func refusedID(text string, err error) string {
	switch {
	case !errors.Is(err, tokens.ErrInvalid) && tokens.Reason(err) != "limited",
		errors.Is(err, tokens.ErrMalformed), errors.Is(err, tokens.ErrForged):
		return ""
	}
	bearer, err := tokens.ParseBearer(text)
	if err != nil {
		return ""
	}
	return bearer.ID().String()
}

// refuse returns the response to a request that judge has refused for the reason err.
func refuse(challenge problem.Challenge, err error) error {
	without, isUnread := errors.AsType[unread](err)
	if !isUnread {
		return challenge.Refused(err)
	}
	if malformed, ok := errors.AsType[syntaxError](without.error); ok {
		return challenge.Malformed(string(malformed))
	}
	return challenge.Missing()
}
