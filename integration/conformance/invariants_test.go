package conformance

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

// checkInvariants checks what holds for every response, whatever the case is about.
func checkInvariants(t *testing.T, request string, got gatewaytest.Response) {
	t.Helper()
	target := strings.Fields(request)[1]
	if strings.HasPrefix(target, "/oauth2/") {
		checkEndpoint(t, got)
	}
	// RFC 9110 §11.6.1 and §15.5.6.
	if got.StatusCode == http.StatusUnauthorized && got.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	if got.StatusCode == http.StatusMethodNotAllowed && got.Header.Get("Allow") == "" {
		t.Error("405 without Allow")
	}
	if got.StatusCode == http.StatusServiceUnavailable && (got.Header.Get("Retry-After") == "" || got.Header.Get("WWW-Authenticate") != "") {
		t.Errorf("503 with Retry-After %q, WWW-Authenticate %q", got.Header.Get("Retry-After"), got.Header.Get("WWW-Authenticate"))
	}
	if got.Header.Get("Date") == "" { // RFC 9110 §6.6.1
		t.Error("no Date")
	}
	checkJSON(t, got)
	if got.StatusCode >= http.StatusBadRequest && gatewaytest.Leak(got.Body) != "" {
		t.Error("a refusal repeats a token or secret")
	}
}

// checkEndpoint checks what every response of an OAuth endpoint has.
func checkEndpoint(t *testing.T, got gatewaytest.Response) {
	t.Helper()
	if cache := got.Header.Values("Cache-Control"); len(cache) != 1 || cache[0] != "no-store" {
		t.Errorf("Cache-Control = %q, want no-store", cache)
	}
	var response map[string]any
	_ = json.Unmarshal([]byte(got.Body), &response)
	refused := got.StatusCode >= http.StatusBadRequest && got.Body != ""
	if refused != (response["error"] != nil) && response["title"] == nil {
		t.Errorf("%d with error = %v", got.StatusCode, response["error"])
	}
	for _, name := range []string{"error", "error_description"} { // RFC 6749 §5.2
		text, _ := response[name].(string)
		for _, c := range text {
			if c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
				t.Errorf("%s %q has %q", name, text, c)
			}
		}
	}
}

// checkJSON wants what says it is JSON to be one value, in UTF-8, without a member
// that is there twice.
func checkJSON(t *testing.T, got gatewaytest.Response) {
	t.Helper()
	mediaType, _, err := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if err != nil || got.Body == "" || mediaType != "application/json" && mediaType != "application/problem+json" {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(got.Body))
	seen := make(map[string]bool)
	depth, name := 0, true
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Errorf("%s: %v: %s", mediaType, err, got.Body)
			return
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth != 1 {
			continue
		}
		// At the outermost level, names and values take turns.
		switch text, isText := token.(string); {
		case token == json.Delim('{'):
		case name && isText:
			if seen[text] {
				t.Errorf("member %q is there twice: %s", text, got.Body)
			}
			seen[text], name = true, false
		default:
			name = true
		}
	}
}
