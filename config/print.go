package config

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v4"

	"snowgate/clients"
)

// Print writes the effective configuration as YAML: every variable, then the
// content of the file. Passwords and keys are redacted, and of the digests of
// client secrets there is only the start, enough to tell them apart.
func (c Config) Print(w io.Writer) error {
	variables := &yaml.Node{Kind: yaml.MappingNode}
	value := reflect.ValueOf(c)
	for _, field := range reflect.VisibleFields(value.Type()) {
		if name := field.Tag.Get("env"); name != "" && name != "-" {
			put(variables, Prefix+name, showVariable(value.FieldByIndex(field.Index).Interface()))
		}
	}
	top := &yaml.Node{Kind: yaml.MappingNode}
	put(top, "environment", variables)
	put(top, "clients", list(c.File.Clients, func(cl clients.Client) *yaml.Node { return clientNode(cl, shortDigest) }))
	put(top, "routes", list(c.File.Routes, routeNode))
	return dump(w, top)
}

// ClientYAML returns c as an element of the clients list, to be pasted into the
// file. It holds the digests of its secrets in full.
func ClientYAML(c clients.Client) string {
	var b strings.Builder
	_ = dump(&b, list([]clients.Client{c}, func(c clients.Client) *yaml.Node { // a Builder never fails
		return clientNode(c, func(digest [32]byte) string { return hex.EncodeToString(digest[:]) })
	}))
	return b.String()
}

func dump(w io.Writer, n *yaml.Node) error {
	out, err := yaml.Dump(n, yaml.WithLineWidth(-1))
	if err != nil {
		return fmt.Errorf("config: print: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// showVariable returns a field of [Config] as it is printed.
func showVariable(value any) *yaml.Node {
	switch v := value.(type) {
	case Secret:
		return text(redactURL(v.Reveal()))
	case time.Time:
		return text(v.UTC().Format(time.RFC3339Nano))
	case int, int64:
		return plain(fmt.Sprint(v))
	default:
		return text(fmt.Sprint(v))
	}
}

// redactURL takes what is secret out of a URL; what is no URL goes as a whole.
func redactURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return redacted
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), "redacted")
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, "redacted")
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}

func shortDigest(digest [32]byte) string { return hex.EncodeToString(digest[:4]) + "…" }

func clientNode(c clients.Client, digest func([32]byte) string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	put(n, "id", text(c.ID))
	if c.Name != "" {
		put(n, "name", text(c.Name))
	}
	put(n, "secrets", list(c.Secrets, func(s clients.Secret) *yaml.Node {
		secret := &yaml.Node{Kind: yaml.MappingNode}
		put(secret, "id", text(s.ID))
		put(secret, "sha256", text(digest(s.SHA256)))
		if !s.ExpiresAt.IsZero() {
			put(secret, "expires_at", plain(s.ExpiresAt.UTC().Format(time.RFC3339Nano)))
		}
		return secret
	}))
	put(n, "scopes", texts(c.Scopes.Names()))
	put(n, "audiences", texts(c.Audiences))
	if c.TokenTTL > 0 {
		put(n, "token_ttl", plain(c.TokenTTL.String()))
	}
	if !c.Rate.IsZero() {
		put(n, "rate", text(c.Rate.String()))
	}
	put(n, "introspect", plain(showIntrospection(c.Introspect)))
	if c.Disabled {
		put(n, "disabled", plain("true"))
	}
	return n
}

// showIntrospection returns the word of the file.
func showIntrospection(policy clients.Introspection) string {
	switch policy {
	case clients.IntrospectAny:
		return "true"
	case clients.IntrospectAudience:
		return policy.String()
	default:
		return "false"
	}
}

func routeNode(r Route) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	put(n, "name", text(r.Name))
	if r.Host != "" {
		put(n, "host", text(r.Host))
	}
	put(n, "path", text(r.Path))
	put(n, "upstreams", list(r.Upstreams, func(u url.URL) *yaml.Node { return text(u.String()) }))
	put(n, "strip_prefix", plain(fmt.Sprint(r.StripPrefix)))
	put(n, "methods", texts(r.Methods))
	put(n, "scopes", texts(r.Scopes.Names()))
	if r.Audience != "" {
		put(n, "audience", text(r.Audience))
	}
	put(n, "public", plain(fmt.Sprint(r.Public)))
	put(n, "mcp", plain(fmt.Sprint(r.MCP)))
	put(n, "websocket", plain(fmt.Sprint(r.WebSocket)))
	put(n, "pass_token", plain(fmt.Sprint(r.PassToken)))
	put(n, "timeout", plain(r.Timeout.String()))
	put(n, "max_body", plain(showSize(r.MaxBody)))
	put(n, "allow_encoded_slash", plain(fmt.Sprint(r.AllowEncodedSlash)))
	if r.Transport != "" {
		put(n, "transport", text(r.Transport))
	}
	put(n, "balance", text(r.Balance))
	if !r.Health.IsZero() {
		check := &yaml.Node{Kind: yaml.MappingNode}
		put(check, "path", text(r.Health.Path))
		put(check, "interval", plain(r.Health.Interval.String()))
		put(check, "timeout", plain(r.Health.Timeout.String()))
		put(n, "health", check)
	}
	put(n, "max_in_flight", plain(fmt.Sprint(r.MaxInFlight)))
	if !r.Rate.IsZero() {
		put(n, "rate", text(r.Rate.String()))
	}
	if !r.ClientRate.IsZero() {
		put(n, "client_rate", text(r.ClientRate.String()))
	}
	putRewrites(n, r)
	if !r.CORS.IsZero() {
		put(n, "cors", corsNode(r.CORS))
	}
	return n
}

// putRewrites adds what a route changes of requests and answers. The values of
// fields that are set may be credentials.
func putRewrites(n *yaml.Node, r Route) {
	if r.AddPrefix != "" {
		put(n, "add_prefix", text(r.AddPrefix))
	}
	putEdits(n, "request", r.EditRequest)
	putEdits(n, "response", r.EditResponse)
	if r.HostHeader != "" {
		put(n, "host_header", text(r.HostHeader))
		return
	}
	put(n, "preserve_host", plain(fmt.Sprint(r.PreserveHost)))
}

func putEdits(n *yaml.Node, of string, e Edits) {
	if len(e.Set) > 0 {
		set := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(e.Set)) {
			put(set, name, text(redacted))
		}
		put(n, "set_"+of+"_headers", set)
	}
	if len(e.Remove) > 0 {
		put(n, "remove_"+of+"_headers", texts(e.Remove))
	}
}

// showSize rounds nothing: a size that has no short form is shown in bytes.
func showSize(size int64) string {
	if size == 0 {
		return "0"
	}
	short := strings.ReplaceAll(humanize.IBytes(uint64(size)), " ", "")
	if back, err := humanize.ParseBytes(short); err == nil && back == uint64(size) {
		return short
	}
	return fmt.Sprint(size)
}

func put(mapping *yaml.Node, key string, value *yaml.Node) {
	mapping.Content = append(mapping.Content, plain(key), value)
}

// text returns a node that reads back as a text, in quotes if it needs them.
func text(value string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(value)
	return n
}

// plain returns a node that is written as it is.
func plain(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value}
}

func texts(values []string) *yaml.Node {
	n := list(values, text)
	n.Style = yaml.FlowStyle
	return n
}

func list[T any](values []T, node func(T) *yaml.Node) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if len(values) == 0 {
		n.Style = yaml.FlowStyle
	}
	for _, value := range values {
		n.Content = append(n.Content, node(value))
	}
	return n
}
