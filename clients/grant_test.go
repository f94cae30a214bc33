package clients_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/clients"
	"snowgate/internal/scope"
)

func TestGrant(t *testing.T) {
	worker := clients.Client{
		ID: "worker", Scopes: "orders.read orders.write", TokenTTL: time.Minute,
		Audiences: []string{"https://a.example", "https://b.example"},
	}
	admin := clients.Client{ID: "admin", Scopes: "ops snowgate:admin audit"}
	onlyAdmin := clients.Client{ID: "only-admin", Scopes: "snowgate:admin"}
	both := worker.Audiences
	tests := []struct {
		client    clients.Client
		scope     string
		resources []string
		want      clients.Grant
		err       error
		reason    string
	}{
		{worker, "", nil, clients.Grant{Scope: "orders.read orders.write", Audience: both}, nil, "everything by default"},
		{worker, "orders.write", nil, clients.Grant{Scope: "orders.write", Audience: both}, nil, "less when asked for less"},
		{worker, "orders.write orders.read orders.write", nil, clients.Grant{Scope: "orders.write orders.read", Audience: both}, nil, "order as asked, no repetition"},
		{worker, "orders.read x", nil, clients.Grant{}, clients.ErrInvalidScope, "nothing is granted in part"},
		{worker, "orders", nil, clients.Grant{}, clients.ErrInvalidScope, "whole scope-tokens"},
		{worker, "ORDERS.READ", nil, clients.Grant{}, clients.ErrInvalidScope, "case-sensitive"},
		{worker, "snowgate:admin", nil, clients.Grant{}, clients.ErrInvalidScope, "not the client's"},
		{worker, " ", nil, clients.Grant{}, clients.ErrInvalidScope, "malformed"},
		{worker, "orders.read\x00", nil, clients.Grant{}, clients.ErrInvalidScope, "malformed"},
		{worker, "", []string{"https://b.example"}, clients.Grant{Scope: worker.Scopes, Audience: both[1:]}, nil, "one resource"},
		{worker, "", []string{"https://b.example", "https://a.example", "https://b.example"}, clients.Grant{Scope: worker.Scopes, Audience: []string{"https://b.example", "https://a.example"}}, nil, "several, one twice"},
		{worker, "", []string{"https://a.example", "https://c.example"}, clients.Grant{}, clients.ErrInvalidTarget, "one of them is not the client's"},
		{worker, "", []string{"https://a.example/"}, clients.Grant{}, clients.ErrInvalidTarget, "compared as text"},
		{worker, "", []string{"https://a.example#f"}, clients.Grant{}, clients.ErrInvalidTarget, "a fragment"},
		{worker, "", []string{"a.example"}, clients.Grant{}, clients.ErrInvalidTarget, "not absolute"},
		{worker, "", []string{""}, clients.Grant{}, clients.ErrInvalidTarget, "empty is not absent"},
		{admin, "", nil, clients.Grant{Scope: "ops audit"}, nil, "the admin scope must be asked for"},
		{admin, "snowgate:admin", nil, clients.Grant{Scope: "snowgate:admin"}, nil, "and then is granted"},
		{admin, "ops", []string{"https://a.example"}, clients.Grant{}, clients.ErrInvalidTarget, "a client without audiences has no resources"},
		{onlyAdmin, "", nil, clients.Grant{}, nil, "an empty scope is a scope"},
	}
	for _, tt := range tests {
		if tt.err == nil {
			tt.want.TTL = tt.client.TokenTTL
		}
		got, err := tt.client.Grant(tt.scope, tt.resources)
		if !errors.Is(err, tt.err) || tt.err == nil && err != nil {
			t.Errorf("%s.Grant(%q, %q) error = %v, want %v: %s", tt.client.ID, tt.scope, tt.resources, err, tt.err, tt.reason)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s.Grant(%q, %q): %s (-want +got):\n%s", tt.client.ID, tt.scope, tt.resources, tt.reason, diff)
		}
	}
}

func TestGrantTakesTheTTLOfTheRegistry(t *testing.T) {
	r := clients.NewRegistry(time.Hour)
	if err := r.ReplaceFile([]clients.Client{{ID: "own", TokenTTL: time.Minute}, {ID: "other"}}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]time.Duration{"own": time.Minute, "other": time.Hour} {
		if got, err := r.Lookup(id).Grant("", nil); err != nil || got.TTL != want {
			t.Errorf("%s: TTL = %v, %v, want %v", id, got.TTL, err, want)
		}
	}
}

// TestGrantErrorsHoldNoSecret: a client that sends its secret in the wrong parameter must not get
// it logged.
func TestGrantErrorsHoldNoSecret(t *testing.T) {
	secret, _ := clients.NewSecret()
	client := clients.Client{ID: "worker"}
	_, scopeErr := client.Grant(secret.Reveal(), nil)
	_, targetErr := client.Grant("", []string{"https://x/?s=" + secret.Reveal()})
	_, longErr := client.Grant(strings.Repeat("x", 1<<14), nil)
	for _, err := range []error{scopeErr, targetErr} {
		if err == nil || strings.Contains(err.Error(), secret.Reveal()[:12]) {
			t.Errorf("error = %v, want one without the secret", err)
		}
	}
	if len(longErr.Error()) > 200 {
		t.Errorf("an error repeats %d bytes of the caller's", len(longErr.Error()))
	}
}

func TestValidAudience(t *testing.T) {
	tests := []struct {
		text   string
		want   bool
		reason string
	}{
		{"https://orders.example", true, "usual"},
		{"https://orders.example:8443/v1?x=y", true, "RFC 8707 allows a query"},
		{"urn:example:orders", true, "not hierarchical"},
		{"api://orders", true, "any scheme"},
		{"", false, "empty"},
		{"orders.example", false, "no scheme"},
		{"/orders", false, "relative"},
		{"//orders.example", false, "relative"},
		{"https:", false, "a scheme and nothing"},
		{"https:///", false, "no host"},
		{"https://a.example#", false, "an empty fragment is one"},
		{"https://a.example#x", false, "fragment"},
		{"https://u:p@a.example", false, "credentials"},
		{"https://a b", false, "space"},
		{"https://é.example", false, "not ASCII"},
		{"https://a.example/\n", false, "line break"},
		{"https://a.example/\"", false, "would end a quoted string"},
		{"https://a.example/%zz", false, "malformed"},
		{"https://a.example/" + strings.Repeat("x", 2048), false, "too long"},
	}
	for _, tt := range tests {
		if got := clients.ValidAudience(tt.text); got != tt.want {
			t.Errorf("ValidAudience(%.60q) = %v, want %v: %s", tt.text, got, tt.want, tt.reason)
		}
	}
}

func FuzzGrant(f *testing.F) {
	f.Add("a b", "https://a.example")
	f.Add("", "")
	f.Add("snowgate:admin", "https://b.example")
	client := clients.Client{ID: "x", Scopes: "a b snowgate:admin", Audiences: []string{"https://a.example"}}
	f.Fuzz(func(t *testing.T, requested, resource string) {
		grant, err := client.Grant(requested, []string{resource})
		if err != nil {
			return
		}
		if !client.Scopes.Contains(grant.Scope) || len(grant.Audience) != 1 || grant.Audience[0] != "https://a.example" {
			t.Fatalf("Grant(%q, %q) = %v: more than the client has", requested, resource, grant)
		}
		if grant.Scope.Has(clients.AdminScope) && !scope.List(requested).Has(clients.AdminScope) {
			t.Fatalf("Grant(%q, %q) = %v: the admin scope was not asked for", requested, resource, grant)
		}
	})
}

func ExampleClient_Grant() {
	client := clients.Client{ID: "ops", Scopes: scope.Of("orders.read", clients.AdminScope)}
	byDefault, _ := client.Grant("", nil)
	asked, _ := client.Grant("snowgate:admin", nil)
	_, err := client.Grant("orders.write", nil)
	fmt.Println(byDefault.Scope)
	fmt.Println(asked.Scope)
	fmt.Println(errors.Is(err, clients.ErrInvalidScope))
	// Output:
	// orders.read
	// snowgate:admin
	// true
}
