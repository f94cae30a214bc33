package problem

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"snowgate/clients"
	"snowgate/internal/request/exchange"
	"snowgate/tokens"
)

// OAuthError is an error in the terms of RFC 6749 §5.2.
type OAuthError struct {
	Status      int         // HTTP status code
	Code        string      // the error parameter
	Description string      // error_description: %x20-21 / %x23-5B / %x5D-7E only
	Header      http.Header // further header fields of the response; may be nil
	Err         error       // private cause; may be nil
}

func (e *OAuthError) Error() string {
	text := e.Code + ": " + e.Description
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the private cause.
func (e *OAuthError) Unwrap() error { return e.Err }

// InvalidRequest refuses a request that cannot be read (RFC 6749 §5.2).
// description is public.
func InvalidRequest(description string) *OAuthError {
	return &OAuthError{Status: http.StatusBadRequest, Code: "invalid_request", Description: description}
}

// UnsupportedGrantType refuses every grant but client_credentials.
func UnsupportedGrantType() *OAuthError {
	return &OAuthError{
		Status: http.StatusBadRequest, Code: "unsupported_grant_type",
		Description: "Only the client_credentials grant is offered here.",
	}
}

// IntrospectionForbidden refuses a client that is known but has no right to
// introspect (RFC 7662 §2.1 leaves the form of the refusal to the server).
func IntrospectionForbidden() *OAuthError {
	return &OAuthError{
		Status: http.StatusForbidden, Code: "unauthorized_client",
		Description: "The client may not introspect tokens.",
	}
}

func postOnly() *OAuthError {
	return &OAuthError{
		Status: http.StatusMethodNotAllowed, Code: "invalid_request",
		Description: "This endpoint takes POST only.",
		Header:      http.Header{"Allow": {http.MethodPost}},
	}
}

// OAuthHandlerFunc is [HandlerFunc] for the OAuth endpoints: they take POST only
// (RFC 6749 §3.2, RFC 7009 §2.1, RFC 7662 §2.1), their error is answered through
// [OAuth], and every response carries Cache-Control: no-store.
type OAuthHandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP calls f and responds with its error, if any, through [OAuth].
func (f OAuthHandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Pragma", "no-cache") // RFC 6749 §5.1 asks for both
	if r.Method != http.MethodPost {
		OAuth(w, r, postOnly())
		return
	}
	if err := f(w, r); err != nil {
		OAuth(w, r, err)
	}
}

// OAuth responds to r with err in the JSON of RFC 6749 §5.2 and leaves err as the
// cause for the access line. It must be called before anything else has been
// written.
func OAuth(w http.ResponseWriter, r *http.Request, err error) {
	exchange.From(r.Context()).Cause = err
	answer := describeOAuth(err)
	header := w.Header()
	for name, values := range answer.Header {
		header[name] = values
	}
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(answer.Status)
	if r.Method == http.MethodHead {
		return
	}
	// The status line is out; a caller that is gone cannot be told more.
	_ = json.NewEncoder(w).Encode(struct {
		Code        string `json:"error"`
		Description string `json:"error_description,omitempty"`
	}{answer.Code, answer.Description})
}

// describeOAuth is the table: which response an error gets.
func describeOAuth(err error) *OAuthError {
	var known *OAuthError
	var tooLarge *http.MaxBytesError
	detail, header, limited := tooMany(err)
	switch {
	case errors.As(err, &known):
		return known
	case limited:
		return &OAuthError{
			Status: http.StatusTooManyRequests, Code: "temporarily_unavailable",
			Description: detail, Header: header, Err: err,
		}
	case errors.Is(err, clients.ErrUnauthenticated):
		return invalidClient(err)
	case errors.Is(err, clients.ErrInvalidScope):
		return &OAuthError{
			Status: http.StatusBadRequest, Code: "invalid_scope",
			Description: "The scope is malformed, unknown, or more than the client may have.", Err: err,
		}
	case errors.Is(err, clients.ErrInvalidTarget):
		return &OAuthError{
			Status: http.StatusBadRequest, Code: "invalid_target",
			Description: "The resource is malformed, unknown, or not for this client.", Err: err,
		}
	case errors.Is(err, tokens.ErrForeignToken):
		// RFC 6749 §5.2 words invalid_grant as "was issued to another client".
		return &OAuthError{
			Status: http.StatusBadRequest, Code: "invalid_grant",
			Description: "The token was issued to another client.", Err: err,
		}
	case errors.Is(err, context.Canceled): // before the store's error that it causes
		return &OAuthError{Status: StatusClientClosedRequest, Code: "invalid_request", Err: err}
	case errors.Is(err, tokens.ErrUnavailable), errors.Is(err, clients.ErrUnavailable):
		return temporarilyUnavailable(err)
	case errors.As(err, &tooLarge):
		return &OAuthError{
			Status: http.StatusRequestEntityTooLarge, Code: "invalid_request",
			Description: "The request body is larger than is accepted here.", Err: err,
		}
	default:
		return &OAuthError{Status: http.StatusInternalServerError, Code: "server_error", Err: err}
	}
}

// invalidClient is one constant response for every failed authentication, so that
// an unknown client cannot be told from a wrong secret.
func invalidClient(err error) *OAuthError {
	return &OAuthError{
		Status: http.StatusUnauthorized, Code: "invalid_client",
		Description: "Client authentication failed.",
		Header:      http.Header{"Www-Authenticate": {`Basic realm="snowgate", charset="UTF-8"`}},
		Err:         err,
	}
}

func temporarilyUnavailable(err error) *OAuthError {
	description := "The gateway cannot decide at the moment."
	if noID, ok := errors.AsType[interface {
		error
		Public() string
	}](err); ok {
		description = "No token can be issued at the moment: " + noID.Public() + "."
	}
	return &OAuthError{
		Status: http.StatusServiceUnavailable, Code: "temporarily_unavailable",
		Description: description,
		Header:      http.Header{"Retry-After": {strconv.Itoa(RetryAfter)}},
		Err:         err,
	}
}
