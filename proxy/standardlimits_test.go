package proxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestTooManyInterimResponses: both transports bound how many come ahead of the response proper.
func TestTooManyInterimResponses(t *testing.T) {
	const interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	for name, standard := range map[string]bool{"direct": false, "standard": true} {
		for n, want := range map[int]int{127: http.StatusOK, 128: http.StatusBadGateway, 1000: http.StatusBadGateway} {
			service := newUpstream(t, saysAndCloses(strings.Repeat(interim, n)+okResponse))
			route := public(service.url)
			route.Standard = standard
			g := newGateway(t, gatewayOptions{}, route)
			c := dial(t, g.address())
			c.send(get("/public", ""))
			response, err := http.ReadResponse(c.Reader, nil)
			for seen := 0; err == nil && response.StatusCode == http.StatusEarlyHints; seen++ {
				if seen == 128 {
					t.Fatalf("%s: more than 128 interim responses passed", name)
				}
				response, err = http.ReadResponse(c.Reader, nil)
			}
			if err != nil || response.StatusCode != want {
				t.Errorf("%s, %d interim responses: %v, %v, want %d", name, n, response, err, want)
			}
		}
	}
}

// TestOptionsOfAStandardResponse: fields that Connection names are not passed on. Beside close they
// are with net/http, which takes the whole field away before anybody sees it. If this fails, net/http
// has changed for the better: have the table say so, and docs/how-to/transport.md too.
func TestOptionsOfAStandardResponse(t *testing.T) {
	for _, test := range []struct {
		options          string
		direct, standard bool // the field passes
	}{
		{"x-of-this-hop", false, false},
		{"keep-alive, X-Of-This-Hop", false, false},
		{"close, X-Of-This-Hop", false, true},
		{"X-Of-This-Hop\r\nConnection: close", false, true},
	} {
		for name, want := range map[string]bool{"direct": test.direct, "standard": test.standard} {
			service := newUpstream(t, saysAndCloses("HTTP/1.1 200 OK\r\nConnection: "+test.options+
				"\r\nX-Of-This-Hop: 1\r\nKeep-Alive: 2\r\nContent-Length: 2\r\n\r\nok"))
			route := public(service.url)
			route.Standard = name == "standard"
			g := newGateway(t, gatewayOptions{}, route)
			response, _ := g.ask(t, get("/public", ""))
			if _, passed := response.Header["X-Of-This-Hop"]; passed != want || response.StatusCode != http.StatusOK {
				t.Errorf("%s, Connection: %s: status %d, passed %t, want %t", name, test.options, response.StatusCode, passed, want)
			}
			if len(response.Header["Keep-Alive"]) != 0 {
				t.Errorf("%s, Connection: %s: Keep-Alive passed", name, test.options)
			}
		}
	}
}
