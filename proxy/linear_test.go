package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"snowgate/integration/lineartest"
	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
	"snowgate/proxy/http1"
	"snowgate/proxy/route"
)

// linearTable has routes at several depths, for a host and for any.
func linearTable(t testing.TB) *route.Table {
	t.Helper()
	var routes []route.Route
	for i, path := range []string{"/", "/a", "/a/a", "/a/a/a/a", "/x;y", "/a/a/a/a/a/a/a/a"} {
		for _, host := range []string{"", "h"} {
			routes = append(routes, route.Route{Name: fmt.Sprintf("r%d%s", i, host), Host: host, Path: path})
		}
	}
	table, err := route.NewTable(routes, []string{"/oauth2", "/livez"})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// matching returns a call of match with a path.
func matching(t *testing.T, table *route.Table) func(text string) {
	router := new(Router)
	router.Swap(table)
	t.Cleanup(router.Close)
	return func(text string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		x := &exchange.Exchange{}
		x.Path, _ = canonical.ParsePath(text)
		r.Host = "h"
		_, _ = match(router.layout(), r.WithContext(exchange.NewContext(r.Context(), x)))
	}
}

// passed returns a case of what chooses the fields that are passed on, of which change makes the
// worst. It counts fields.
func passed(name string, size int, change func(h http.Header, size int)) lineartest.Case {
	return lineartest.Case{Name: "compose, " + name, Size: size, Prepare: func(size int) func() {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		change(r.Header, size)
		x := &exchange.Exchange{PeerTrusted: true, Peer: &exchange.Peer{Text: "192.0.2.1"}}
		return func() {
			var out outgoing
			out.compose(r, x, &route.Policy{WebSocket: true}, nil)
			out.giveBack()
		}
	}}
}

// TestLinear: the work of what finds a route, and makes the request to a service, grows as the request
// of the client does.
func TestLinear(t *testing.T) {
	find := matching(t, linearTable(t))
	numbered := func(name, format string) func(h http.Header, size int) {
		return func(h http.Header, size int) { h[name] = []string{lineartest.Number("", format, "", size)} }
	}
	lines := func(name, format string) func(h http.Header, size int) {
		return func(h http.Header, size int) {
			for i := range size {
				h[name] = append(h[name], fmt.Sprintf(format, i))
			}
		}
	}
	fieldsOf := func(format string) func(h http.Header, size int) {
		return func(h http.Header, size int) {
			for i := range size {
				h[fmt.Sprintf(format, i)] = []string{"v"}
			}
		}
	}
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("match, segments", "", "/a", "", find),
		lineartest.Strings("match, parameters", "/a", ";b", "", find),
		lineartest.Strings("match, segments with parameters", "", "/a;b", "", find),
		lineartest.Strings("match, encoded slashes", "/a", "%2Fa", "", find),
		lineartest.Strings("match, encoded slashes in a row", "/a", "%2F", "", find),
		lineartest.Strings("match, encoded slashes and parameters", "/a", "%2Fa;b/c", "", find),
		lineartest.Strings("strip", "", "/a", "", func(text string) { lineartest.Keep(strip(text, 8) == "") }),
		lineartest.Strings("isTraceparent", "00-", "0", "", func(text string) { lineartest.Keep(isTraceparent(text)) }),
		lineartest.Numbers("names", "a", ",x%d", "", func(text string) { lineartest.Keep(names([]string{text}, "upgrade")) }),
		passed("fields", 1000, fieldsOf("X-%d")),
		passed("forged fields", 1000, fieldsOf("X_Snowgate_%d")),
		passed("options of Connection", 0, numbered("Connection", "x%d,")),
		passed("lines of Connection", 1000, lines("Connection", "x%d")),
		passed("options and as many fields", 1000, func(h http.Header, size int) {
			numbered("Connection", "x-%d,")(h, 6*size)
			fieldsOf("X-%d")(h, size)
		}),
		passed("cookies", 1000, lines("Cookie", "a%d=b")),
		passed("lines of Te", 1000, lines("Te", "x%d")),
		passed("lines of Expect", 1000, lines("Expect", "x%d")),
		passed("lines of Upgrade", 1000, lines("Upgrade", "x%d")),
		passed("addresses", 1000, lines("X-Forwarded-For", "192.0.2.%d")),
		passed("lines of traces", 1000, lines("Traceparent", "00-%d")),
		passed("states of a trace", 0, numbered("Tracestate", "k%d=v,")),
		{Name: "sortFields", Size: 1000, Prepare: func(size int) func() {
			unsorted, list := make([]http1.Field, size), make([]http1.Field, size)
			for i := range unsorted {
				unsorted[i].Name = fmt.Sprintf("X-%d", size-i)
			}
			return func() { sortFields(list[:copy(list, unsorted)]) }
		}},
	})
}

// TestLinearPreflights: the same for what browsers ask before they send a request.
func TestLinearPreflights(t *testing.T) {
	table, err := route.NewTable([]route.Route{{Name: "a", Path: "/", CORS: &route.CORS{
		Origins: []string{"https://*.example.com", "https://a.example", "https://b.example"}, RequestHeaders: []string{"X-A", "X-B"},
	}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	router := new(Router)
	router.Swap(table)
	t.Cleanup(router.Close)
	handler := CrossOrigin()(http.NotFoundHandler())
	ask := func(method, origin, wanted, headers string) {
		r := httptest.NewRequest(method, "/", nil)
		x := &exchange.Exchange{Matched: &router.layout().entries[0]}
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", wanted)
		r.Header.Set("Access-Control-Request-Headers", headers)
		handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(exchange.NewContext(r.Context(), x)))
	}
	headers := func(text string) { ask(http.MethodOptions, "https://a.example", http.MethodGet, text) }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("allowed headers", "x-a", ",x-a", "", headers),
		lineartest.Strings("allowed headers in turn", "x-a", ",x-b,x-a", "", headers),
		lineartest.Numbers("headers", "x-a", ",x%d", "", headers),
		lineartest.Strings("commas", "", ",", "", headers),
		lineartest.Strings("spaces", "x-a", " ", "", headers),
		lineartest.Strings("a method", "", "a", "", func(text string) { ask(http.MethodOptions, "https://a.example", text, "") }),
		lineartest.Strings("an origin", "https://", "a.", "example.com", func(text string) { ask(http.MethodGet, text, "", "") }),
		lineartest.Strings("a refused origin", "https://", "a.", "example.net", func(text string) { ask(http.MethodOptions, text, http.MethodGet, "") }),
	})
}
