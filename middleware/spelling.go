package middleware

import (
	"net/http"
	"strings"

	"snowgate/internal/problem"
	"snowgate/internal/request/fields"
)

// shownName limits how many bytes of a client's field name the response repeats.
const shownName = 64

// refuseSpellings returns an error if a service may take a field of header for one that only the
// gateway or a proxy may set: X_Snowgate_Client, or X-Snowgate-Admin, which no proxy overwrites. A
// proxy that asks for a verdict passes such a field on to the service.
func refuseSpellings(header http.Header) error {
	found := ""
	for name := range header {
		if misspelt(name) && (found == "" || name < found) {
			found = name
		}
	}
	if found == "" {
		return nil
	}
	return problem.New(http.StatusBadRequest,
		"The field "+found[:min(len(found), shownName)]+" may be mistaken for a field that only the gateway or a proxy may set. Send the request without it.", nil)
}

// misspelt reports whether name is another spelling of a field that [fields] knows, or a field of
// the gateway that proxies do not overwrite.
func misspelt(name string) bool {
	switch fields.KindOf(name) {
	case fields.Ordinary:
		return false
	case fields.Identity:
		return !overwritten(name)
	default:
		return strings.ContainsFunc(name, func(c rune) bool {
			return c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
		})
	}
}

// overwritten reports whether name is an identity field in the canonical spelling of net/http. A
// proxy that copies the verdict, or describes the request, sets such a field.
func overwritten(name string) bool {
	switch name {
	case "X-Snowgate-Client", "X-Snowgate-Scope", "X-Snowgate-Token-Id", "X-Snowgate-Token-Expires",
		"X-Request-Id", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Traceparent":
		return true
	}
	return false
}
