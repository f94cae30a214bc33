package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"snowgate/integration/lineartest"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// TestLinear: reading JSON, queries and entity tags, and reporting all faults, takes time linear in
// their size.
func TestLinear(t *testing.T) {
	refused := func(text string) {
		o, err := parseObject([]byte(text))
		if err == nil {
			o.text("name")
			o.instant("at")
			o.reason()
			err = o.check()
		}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		problem.Write(httptest.NewRecorder(), r.WithContext(exchange.NewContext(r.Context(), &exchange.Exchange{})), err)
	}
	tags := func(text string) { readTags(http.Header{"If-Match": {text}}, "If-Match") }
	jsonType := func(text string) { _ = checkJSON(http.Header{"Content-Type": {text}}) }
	b := newBench(t)
	client := func(text string) { b.serveOnly(http.MethodPost, "/clients", text) }
	revocation := func(text string) { b.serveOnly(http.MethodPost, "/revocations", text) }
	query := func(text string) { b.serveOnly(http.MethodGet, "/clients?"+text, "") }
	path := func(text string) { b.serveOnly(http.MethodGet, text, "") }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Numbers("parseObject, members", "{", `"a%d":1,`, `"z":1}`, refused),
		lineartest.Strings("parseObject, one member many times", "{", `"a":1,`, `"a":1}`, refused),
		lineartest.Strings("parseObject, a long name", `{"`, `~/`, `":1}`, refused),
		lineartest.Strings("parseObject, lists that do not end", `{"a":`, `[`, "", refused),
		lineartest.Strings("parseObject, objects that do not end", `{"a":`, `{"a":`, "", refused),
		{Name: "parseObject, nested", Prepare: func(size int) func() {
			text := `{"name":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + "}"
			return func() { refused(text) }
		}},
		lineartest.Strings("parseObject, escapes", `{"name":"`, `\u0041`, `"}`, refused),
		lineartest.Strings("parseObject, half surrogates", `{"name":"`, `\ud800`, `"}`, refused),
		lineartest.Strings("parseObject, a long number", `{"name":`, `1`, `}`, refused),
		lineartest.Strings("parseObject, an instant", `{"at":"2026-01-31T12:00:00.`, `1`, `Z"}`, refused),
		lineartest.Strings("parseObject, a reason", `{"reason":"`, `sgt `, `"}`, refused),
		lineartest.Strings("parseObject, space", `{`, " ", `}`, refused),
		lineartest.Strings("parseObject, more behind it", `{}`, "{}", ``, refused),
		lineartest.Strings("parseObject, commas", `{`, ",", `}`, refused),
		lineartest.Numbers("readTags, tags", `"a"`, `, "%d"`, "", tags),
		lineartest.Strings("readTags, commas", "", ",", "", tags),
		lineartest.Strings("readTags, quotes", "", `"`, "", tags),
		lineartest.Strings("readTags, weak", "", `W/`, "", tags),
		lineartest.Numbers("checkJSON, parameters", "application/json", ";a%d=b", "", jsonType),
		lineartest.Numbers("checkJSON, parts of a parameter", "application/json", ";a*%d=b", "", jsonType),
		lineartest.Numbers("POST clients, members", "{", `"a%d":1,`, `"z":1}`, client),
		lineartest.Numbers("POST clients, audiences", `{"audiences":["https://a"`, `,"https://a/%d"`, `]}`, client),
		lineartest.Numbers("POST clients, faulty audiences", `{"audiences":["https://a"`, `,"%d"`, `]}`, client),
		lineartest.Numbers("POST clients, scopes", `{"scope":"a`, ` a%d`, `"}`, client),
		lineartest.Numbers("POST clients, grant types", `{"grant_types":["a"`, `,"%d"`, `]}`, client),
		lineartest.Numbers("POST revocations, members", "{", `"a%d":1,`, `"z":1}`, revocation),
		lineartest.Numbers("GET clients, parameters", "", "a%d=b&", "", query),
		lineartest.Strings("GET clients, one parameter many times", "limit=1", "&limit=1", "", query),
		lineartest.Strings("GET clients, a cursor", "after=", "%41", "", query),
		lineartest.Strings("GET clients/id", "/clients/", "a", "", path),
		lineartest.Strings("GET tokens/id", "/tokens/", "0", "", path),
		lineartest.Strings("GET ids/id", "/ids/", "0", "", path),
		lineartest.Strings("GET segments", "/clients", "/a", "", path),
	})
}
