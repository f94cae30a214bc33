package clients_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/clients"
	"snowgate/limit"
)

const wholeDocument = `{
	"client_id": "orders-worker", "client_name": "Orders, nächtlich", "scope": "orders.read orders.write",
	"grant_types": ["client_credentials"], "token_endpoint_auth_method": "client_secret_basic",
	"audiences": ["https://orders.example", "urn:x"], "token_ttl": 1800, "rate": "100/s",
	"introspect": "audience", "disabled": true
}`

func TestDecodeDocument(t *testing.T) {
	want := clients.Document{
		ID: "orders-worker", Name: "Orders, nächtlich", Scopes: "orders.read orders.write",
		Audiences: []string{"https://orders.example", "urn:x"}, TokenTTL: 30 * time.Minute,
		Rate: limit.Rate{Count: 100, Per: time.Second}, Introspect: clients.IntrospectAudience, Disabled: true,
	}
	got, err := clients.DecodeDocument([]byte(wholeDocument), time.Hour)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("DecodeDocument = %v (-want +got):\n%s", err, diff)
	}
	least, err := clients.DecodeDocument([]byte(` {"client_id":"x"} `), 0)
	if diff := cmp.Diff(clients.Document{ID: "x"}, least); diff != "" || err != nil {
		t.Errorf("the least document: %v (-want +got):\n%s", err, diff)
	}
}

func TestDecodeDocumentFaults(t *testing.T) {
	secret, _ := clients.NewSecret()
	long := strings.Repeat("x", 300)
	manyAudiences, _ := json.Marshal(slices.Repeat([]string{"https://a"}, 129))
	var manyScopes []string
	for i := range 129 {
		manyScopes = append(manyScopes, fmt.Sprint(i))
	}
	tests := []struct{ members, pointers, reason string }{
		{``, `/client_id`, "the id is needed"},
		{`"client_id":"a b"`, `/client_id`, "not an id"},
		{`"client_id":".."`, `/client_id`, "no path can name it"},
		{`"client_id":null`, `/client_id`, "null is no string"},
		{`"client_id":1`, `/client_id`, "a number is no string"},
		{`"client_id":"` + long + `"`, `/client_id`, "too long"},
		{`"client_id":"` + secret.Reveal() + `"`, `/client_id`, "a secret"},
		{`"client_id":"a","client_id":"a"`, `/client_id`, "twice"},
		{`"client_id":"a","client_i\u0064":"b"`, `/client_id`, "twice in another spelling"},
		{`"Client_id":"a","client_id":"a"`, `/Client_id`, "names are case-sensitive"},
		{`"client_id":"a","client_name":"` + long + `"`, `/client_name`, "too long"},
		{`"client_id":"a","client_name":" x"`, `/client_name`, "a space in front"},
		{`"client_id":"a","client_name":"a\nb"`, `/client_name`, "a control character"},
		{`"client_id":"a","client_name":"a\u202eb"`, `/client_name`, "a character that turns the text around"},
		{`"client_id":"a","client_name":"a\ud800b"`, ``, "half a surrogate pair"},
		{`"client_id":"a","scope":"a  b"`, `/scope`, "two spaces"},
		{`"client_id":"a","scope":["a"]`, `/scope`, "an array"},
		{`"client_id":"a","scope":"` + strings.Repeat("y", 4097) + `"`, `/scope`, "too long"},
		{`"client_id":"a","scope":"` + strings.Join(manyScopes, " ") + `"`, `/scope`, "too many"},
		{`"client_id":"a","grant_types":["password"]`, `/grant_types`, "another grant"},
		{`"client_id":"a","grant_types":[]`, `/grant_types`, "none"},
		{`"client_id":"a","grant_types":["client_credentials","client_credentials"]`, `/grant_types`, "twice"},
		{`"client_id":"a","token_endpoint_auth_method":"none"`, `/token_endpoint_auth_method`, "another method"},
		{`"client_id":"a","audiences":"https://a"`, `/audiences`, "not an array"},
		{`"client_id":"a","audiences":null`, `/audiences`, "null"},
		{`"client_id":"a","audiences":[null]`, `/audiences`, "null inside"},
		{`"client_id":"a","audiences":["https://a","b","https://a","https://c#d"]`, `/audiences/1 /audiences/2 /audiences/3`, "three of four"},
		{`"client_id":"a","audiences":["https://a/` + secret.Reveal() + `"]`, `/audiences/0`, "a secret"},
		{`"client_id":"a","audiences":` + string(manyAudiences), `/audiences`, "too many"},
		{`"client_id":"a","token_ttl":3601`, `/token_ttl`, "longer than allowed"},
		{`"client_id":"a","token_ttl":-1`, `/token_ttl`, "negative"},
		{`"client_id":"a","token_ttl":1.5`, `/token_ttl`, "a fraction"},
		{`"client_id":"a","token_ttl":"60"`, `/token_ttl`, "a string"},
		{`"client_id":"a","token_ttl":99999999999999999999`, `/token_ttl`, "more than a number holds"},
		{`"client_id":"a","token_ttl":18446744074`, `/token_ttl`, "would overflow as a duration"},
		{`"client_id":"a","token_ttl":null`, `/token_ttl`, "null"},
		{`"client_id":"a","rate":"fast"`, `/rate`, "no rate"},
		{`"client_id":"a","introspect":"all"`, `/introspect`, "no policy"},
		{`"client_id":"a","introspect":true`, `/introspect`, "the word of the file"},
		{`"client_id":"a","disabled":"true"`, `/disabled`, "a string"},
		{`"client_id":"a","disabled":null`, `/disabled`, "null"},
		{`"client_id":"a","secrets":[]`, `/secrets`, "said by the server"},
		{`"client_id":"a","sha256":"00"`, `/sha256`, "digests cannot be stated"},
		{`"client_id":"a","a/b~c":1`, `/a~1b~0c`, "RFC 6901 §3"},
		{`"client_id":"a","` + secret.Reveal() + `":1`, `/[redacted]`, "a secret as a name"},
		{`"x":1,"client_id":" ","y":2,"token_ttl":"z"`, `/x /client_id /y /token_ttl`, "all at once, as they come"},
	}
	for _, tt := range tests {
		_, err := clients.DecodeDocument([]byte("{"+tt.members+"}"), time.Hour)
		var faults clients.DocumentError
		if !errors.As(err, &faults) || !errors.Is(err, clients.ErrDocument) {
			t.Errorf("%s: error = %v, want a DocumentError", tt.reason, err)
			continue
		}
		var pointers []string
		for _, f := range faults {
			pointers = append(pointers, f.Pointer)
			if strings.Contains(f.Detail+f.Pointer, secret.Reveal()[:12]) || len(f.Detail) > 200 || f.Detail == "" {
				t.Errorf("%s: detail %q", tt.reason, f.Detail)
			}
		}
		if got := strings.Join(pointers, " "); got != tt.pointers {
			t.Errorf("%s: faults at %q, want %q: %v", tt.reason, got, tt.pointers, err)
		}
	}
}

func TestDecodeDocumentThatIsNone(t *testing.T) {
	for _, text := range []string{
		"", " ", "null", "[]", `"x"`, "{", `{"client_id"`, `{"client_id":"a"`, `{"client_id":"a"}{}`, `{"client_id":"a"} x`,
		`{"client_id":"a",}`, `{client_id:"a"}`, "{\"client_id\":\"a\xff\"}", "{\"\xff\":1,\"client_id\":\"a\"}",
		`{"client_id":"a","\ud800":1}`, strings.Repeat(" ", 600<<10) + `{"client_id":"a"}`,
		`{"client_id":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	} {
		_, err := clients.DecodeDocument([]byte(text), 0)
		var faults clients.DocumentError
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Pointer != "" {
			t.Errorf("DecodeDocument(%.40q) = %v, want one fault of the whole", text, err)
		}
	}
}

// A document that was shown can be edited and sent back without the members that the server sets.
func TestViewIsADocument(t *testing.T) {
	d, err := clients.DecodeDocument([]byte(wholeDocument), 0)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := clients.Client{ID: d.ID, Source: clients.SourceRegistry, CreatedAt: at, UpdatedAt: at}
	d.ApplyTo(&c)
	_, credential := clients.Issue("s1", at, time.Time{})
	c.Secrets = []clients.Secret{credential.Secret()}
	text, err := json.Marshal(c.View(map[clients.SecretRef]time.Time{{Client: c.ID, Secret: "s1"}: at}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"client_id":"orders-worker","client_name":"Orders, nächtlich","scope":"orders.read orders.write",` +
		`"grant_types":["client_credentials"],"token_endpoint_auth_method":"client_secret_basic","audiences":["https://orders.example","urn:x"],` +
		`"token_ttl":1800,"rate":"100/s","introspect":"audience","disabled":true,"source":"registry",` +
		`"created_at":"2026-03-01T12:00:00Z","updated_at":"2026-03-01T12:00:00Z",` +
		`"secrets":[{"id":"s1","created_at":"2026-03-01T12:00:00Z","last_used_at":"2026-03-01T12:00:00Z"}]}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("View (-want +got):\n%s", diff)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"source", "created_at", "updated_at", "secrets"} {
		delete(members, name)
	}
	again, _ := json.Marshal(members)
	back, err := clients.DecodeDocument(again, 0)
	if diff := cmp.Diff(d, back); diff != "" || err != nil {
		t.Errorf("sent back: %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(d, c.Document()); diff != "" {
		t.Errorf("Document (-want +got):\n%s", diff)
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"Orders": true, "Ordini, di notte (2)": true, "注文": true, strings.Repeat("x", 200): true,
		"": false, " ": false, "x ": false, strings.Repeat("x", 201): false, "a\tb": false, "a\x00": false,
		"a\u200bb": false, "a\u00a0b": false, "a\xff": false, "\ufffd": false, "a\u2028b": false,
	} {
		if got := clients.ValidName(name); got != want {
			t.Errorf("ValidName(%.20q) = %v, want %v", name, got, want)
		}
	}
}

func FuzzDecodeDocument(f *testing.F) {
	for _, seed := range []string{wholeDocument, `{"client_id":"x"}`, `{}`, `{"client_id":"\u0061","token_ttl":1e3}`, `{"client_id":"a","audiences":[]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := clients.DecodeDocument(text, time.Hour)
		if err != nil {
			var faults clients.DocumentError
			if !errors.As(err, &faults) || len(faults) == 0 || d.ID != "" {
				t.Fatalf("DecodeDocument(%q) = %+v, %v", text, d, err)
			}
			return
		}
		if !clients.ValidID(d.ID) || d.TokenTTL < 0 || d.TokenTTL > time.Hour || d.Name != "" && !clients.ValidName(d.Name) || d.Rate.Valid() != nil {
			t.Fatalf("DecodeDocument(%q) = %+v", text, d)
		}
		// A document that was read is shown, and reads the same again.
		c := clients.Client{ID: d.ID}
		d.ApplyTo(&c)
		shown, err := json.Marshal(c.View(nil))
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(shown, &members); err != nil {
			t.Fatal(err)
		}
		delete(members, "source")
		delete(members, "secrets")
		shown, _ = json.Marshal(members)
		again, err := clients.DecodeDocument(shown, time.Hour)
		if len(d.Audiences) == 0 {
			d.Audiences, again.Audiences = nil, nil
		}
		if diff := cmp.Diff(d, again); diff != "" || err != nil {
			t.Fatalf("DecodeDocument(%s) = %v (-want +got):\n%s", shown, err, diff)
		}
	})
}
