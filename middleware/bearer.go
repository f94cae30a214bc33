package middleware

import (
	"errors"
	"net/http"
	"strings"
)

// errNoCredentials means that a request has no bearer token.
var errNoCredentials = errors.New("no bearer token")

// syntaxError describes a malformed Authorization header. Its text is constant and public.
type syntaxError string

func (e syntaxError) Error() string { return string(e) }

const (
	errTwoLines = syntaxError("There is more than one Authorization header.")
	errSyntax   = syntaxError(`The Authorization header is not "Bearer", a space and one token.`)
)

// bearerToken returns the token of the Authorization header (RFC 6750 §2.1), the only place that
// counts: tokens in the query, the body or a cookie are ignored. Its error is [errNoCredentials] or
// a [syntaxError].
//
// Several spaces may stand between the scheme and the token (RFC 6750, RFC 9110 §11.4): credentials
// = "Bearer" 1*SP b64token.
func bearerToken(header http.Header) (string, error) {
	lines := header["Authorization"]
	switch len(lines) {
	case 0:
		return "", errNoCredentials
	case 1:
	default:
		return "", errTwoLines
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	switch {
	case !isToken(scheme):
		return "", errSyntax
	case !strings.EqualFold(scheme, "Bearer"):
		return "", errNoCredentials // another scheme, not for the gateway
	}
	token = strings.TrimLeft(token, " ")
	if !isB64Token(token) {
		return "", errSyntax
	}
	return token, nil
}
