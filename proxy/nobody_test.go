package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNotModifiedOverHTTP2 has a service announce the length that a 200 would have
// (RFC 9110 §8.6). The HTTP/2 transport of net/http takes the missing body for a broken one.
func TestNotModifiedOverHTTP2(t *testing.T) {
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Etag", `"a"`)
		w.WriteHeader(http.StatusNotModified)
	}))
	service.Config.Protocols = new(http.Protocols)
	service.Config.Protocols.SetUnencryptedHTTP2(true)
	service.Start()
	t.Cleanup(service.Close)
	address := strings.Replace(service.URL, "http://", "h2c://", 1)
	g := newGateway(t, gatewayOptions{}, public(mustParse(t, address)))
	for _, method := range []string{"GET", "HEAD", "POST"} {
		response, body := g.ask(t, method+" /public HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n")
		if response.StatusCode != http.StatusNotModified || response.Header.Get("Etag") != `"a"` || body != "" {
			t.Errorf("%s = %d %v with %q, want 304 with its Etag and no body", method, response.StatusCode, response.Header, body)
		}
	}
}
