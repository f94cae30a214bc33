package handlers

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"snowgate/internal/problem"
)

// TestFormWithContentEncoding: a compressed form is refused, not read as plain text.
func TestFormWithContentEncoding(t *testing.T) {
	for coding, want := range map[string]int{"": 0, "gzip": 415, "identity": 415, "br, gzip": 415} {
		r := httptest.NewRequest(http.MethodPost, "/oauth2/token", strings.NewReader("grant_type=client_credentials"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if coding != "" {
			r.Header.Set("Content-Encoding", coding)
		}
		_, err := readForm(r)
		var refusal *problem.OAuthError
		got := 0
		if errors.As(err, &refusal) {
			got = refusal.Status
		}
		if got != want {
			t.Errorf("readForm with Content-Encoding %q = %v, want status %d", coding, err, want)
		}
	}
}
