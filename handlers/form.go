package handlers

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"snowgate/internal/problem"
)

// form holds the parameters of a request body, as RFC 6749 §3.2 and appendix B require: each at
// most once, and an empty value counts as absent.
type form url.Values

// get returns the value of name, or "" if it is absent.
func (f form) get(name string) string { return url.Values(f).Get(name) }

// repeatable names the parameters that may come more than once.
var repeatable = map[string]bool{"resource": true} // RFC 8707 §2

// readForm reads the body of r. It refuses parameters in the query, because URLs end up in logs
// (RFC 6749 §2.3.1, RFC 6750 §5.3). The caller limits the size of the body.
func readForm(r *http.Request) (form, error) {
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return nil, problem.InvalidRequest("Parameters belong in the body, not in the query.")
	}
	if err := checkFormType(r.Header.Values("Content-Type")); err != nil {
		return nil, err
	}
	if len(r.Header["Content-Encoding"]) > 0 {
		return nil, &problem.OAuthError{
			Status: http.StatusUnsupportedMediaType, Code: "invalid_request",
			Description: "The body must not have a Content-Encoding.",
			Header:      http.Header{"Accept-Encoding": {"identity"}}, // RFC 9110 §15.5.16
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, bodyError(err)
	}
	return parseForm(string(body))
}

// bodyError distinguishes a body that is too large or too slow from one that was cut off.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return err
	}
	status := http.StatusBadRequest
	if late := new(problem.Error); errors.As(err, &late) {
		status = late.Status
	}
	return &problem.OAuthError{
		Status: status, Code: "invalid_request",
		Description: "The request body could not be read.", Err: fmt.Errorf("reading the body: %w", err),
	}
}

func checkFormType(lines []string) error {
	const want = "application/x-www-form-urlencoded"
	if len(lines) != 1 {
		return problem.InvalidRequest("The request needs one Content-Type: " + want + ".")
	}
	mediaType, parameters, err := mime.ParseMediaType(lines[0])
	if err != nil || mediaType != want {
		return problem.InvalidRequest("The Content-Type must be " + want + ".")
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return problem.InvalidRequest("The charset must be UTF-8.")
	}
	return nil
}

// parseForm decodes a body. Its errors never repeat the body, which may hold a secret.
func parseForm(body string) (form, error) {
	values, err := url.ParseQuery(body)
	if err != nil {
		return nil, problem.InvalidRequest("The body is not form-encoded.")
	}
	for name, list := range values {
		if len(list) > 1 && !repeatable[name] {
			return nil, problem.InvalidRequest("A parameter is given more than once.")
		}
		for _, value := range append(list, name) {
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				return nil, problem.InvalidRequest("A parameter is not valid UTF-8 text.")
			}
		}
	}
	return form(values), nil
}
