package clients_test

import (
	"strings"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/integration/lineartest"
	"snowgate/internal/scope"
)

// TestLinear: checking ids, secrets, requests and documents takes time linear in their size.
func TestLinear(t *testing.T) {
	registry := clients.NewRegistry(time.Hour)
	client := clients.Client{ID: "orders", Scopes: scope.Of("a", "b"), Audiences: []string{"https://a.example", "https://b.example"}}
	authenticate := func(text string) { _, _ = registry.Authenticate(text, text, time.Now()) }
	document := func(text string) { _, _ = clients.DecodeDocument([]byte(text), time.Hour) }
	audience := func(text string) { lineartest.Keep(clients.ValidAudience(text)) }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("ValidID", "", "a", "", func(text string) { lineartest.Keep(clients.ValidID(text)) }),
		lineartest.Strings("ValidName", "", "ä ", "", func(text string) { lineartest.Keep(clients.ValidName(text)) }),
		lineartest.Strings("CheckSecret, digits", "sgs_", "a", "", func(text string) { _ = clients.CheckSecret(text) }),
		lineartest.Strings("CheckSecret, prefixes", "", "sgs_", "", func(text string) { _ = clients.CheckSecret(text) }),
		lineartest.Strings("Authenticate", "sgs_", "a", "", authenticate),
		lineartest.Strings("Grant, one scope many times", "a", " a", "", func(text string) { _, _ = client.Grant(text, nil) }),
		lineartest.Numbers("Grant, scopes that differ", "a", " a%d", "", func(text string) { _, _ = client.Grant(text, nil) }),
		{Name: "Grant, resources", Prepare: func(size int) func() {
			resources := strings.Split(strings.Repeat("https://a.example https://b.example ", size/32)+"https://a.example", " ")
			return func() { _, _ = client.Grant("", resources) }
		}},
		lineartest.Strings("ValidAudience, a path", "https://a", "/b", "", audience),
		lineartest.Strings("ValidAudience, encoded text", "https://a/", "%41", "", audience),
		lineartest.Strings("ParseIntrospection", "", "audience ", "", func(text string) { _, _ = clients.ParseIntrospection(text) }),
		lineartest.Numbers("DecodeDocument, members", `{`, `"a%d":1,`, `"z":1}`, document),
		lineartest.Strings("DecodeDocument, one member many times", `{`, `"client_id":"a",`, `"z":1}`, document),
		lineartest.Strings("DecodeDocument, lists", `{"audiences":`, "[", "", document),
		lineartest.Strings("DecodeDocument, objects", `{"audiences":`, `{"a":`, "", document),
		{Name: "DecodeDocument, nested", Prepare: func(size int) func() {
			text := `{"audiences":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + "}"
			return func() { document(text) }
		}},
		lineartest.Numbers("DecodeDocument, audiences", `{"audiences":["https://a"`, `,"https://a/%d"`, `]}`, document),
		lineartest.Numbers("DecodeDocument, faulty audiences", `{"audiences":["https://a"`, `,"%d"`, `]}`, document),
		lineartest.Strings("DecodeDocument, one audience many times", `{"audiences":["https://a"`, `,"https://a"`, `]}`, document),
		lineartest.Numbers("DecodeDocument, scopes", `{"scope":"a`, ` a%d`, `"}`, document),
		lineartest.Strings("DecodeDocument, a long name", `{"`, `~/`, `":1}`, document),
		lineartest.Strings("DecodeDocument, escapes", `{"client_name":"`, `\u0041`, `"}`, document),
		lineartest.Strings("DecodeDocument, a long number", `{"token_ttl":`, `1`, `}`, document),
		lineartest.Strings("DecodeDocument, space", `{`, ` `, `}`, document),
	})
}
