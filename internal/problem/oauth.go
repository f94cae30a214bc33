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

// OAuthError is an error response of RFC 6749 §5.2.
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

// InvalidRequest refuses a malformed request (RFC 6749 §5.2). description is public.
func InvalidRequest(description string) *OAuthError {
	return &OAuthError{Status: http.StatusBadRequest, Code: "invalid_request", Description: description}
}

// UnsupportedGrantType refuses all grants except client_credentials.
func UnsupportedGrantType() *OAuthError {
	return &OAuthError{
		Status: http.StatusBadRequest, Code: "unsupported_grant_type",
		Description: "Only the client_credentials grant is offered here.",
	}
}

// IntrospectionForbidden refuses an authenticated client without the right to introspect (RFC 7662
// §2.1 leaves the form of the refusal to the server).
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

// OAuthHandlerFunc is [HandlerFunc] for the OAuth endpoints. It accepts only POST (RFC 6749 §3.2,
// RFC 7009 §2.1, RFC 7662 §2.1), responds with errors through [OAuth], and sets Cache-Control:
// no-store on every response.
type OAuthHandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP calls f and responds with its error, if any, through [OAuth].
func (f OAuthHandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Pragma", "no-cache") // RFC 6749 §5.1 requires both
	if r.Method != http.MethodPost {
		OAuth(w, r, postOnly())
		return
	}
	if err := f(w, r); err != nil {
		OAuth(w, r, err)
	}
}

// OAuth responds to r with err in the JSON of RFC 6749 §5.2, and leaves err as the cause for the
// access line. The caller must not have written anything before.
func OAuth(w http.ResponseWriter, r *http.Request, err error) {
	exchange.From(r.Context()).Cause = err
	response := describeOAuth(err)
	header := w.Header()
	for name, values := range response.Header {
		header[name] = values
	}
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(response.Status)
	if r.Method == http.MethodHead {
		return
	}
	// The status line is sent. A caller that has gone away cannot be told about an error.
	_ = json.NewEncoder(w).Encode(struct {
		Code        string `json:"error"`
		Description string `json:"error_description,omitempty"`
	}{response.Code, response.Description})
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
		// The text for invalid_grant in RFC 6749 §5.2 is "was issued to another client".
		return &OAuthError{
			Status: http.StatusBadRequest, Code: "invalid_grant",
			Description: "The token was issued to another client.", Err: err,
		}
	case errors.Is(err, context.Canceled): // before the error of the store, which wraps it
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

// invalidClient returns the same response for every failed authentication, so that an unknown
// client cannot be distinguished from a wrong secret.
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
