package config

import (
	"net/http"

	"go.yaml.in/yaml/v4"

	"snowgate/internal/request/canonical"
	"snowgate/internal/request/fields"
)

// Edits are changes of a header.
type Edits struct {
	// Set holds the values of fields by name, in the spelling of
	// [http.CanonicalHeaderKey].
	Set map[string]string
	// Remove holds names of fields.
	Remove []string
}

// maxSetValue bounds the value of a field that is set, in bytes.
const maxSetValue = 4096

// edits reads the keys set_… and remove_…_headers of a route.
func (r *routeReader) edits(set, remove *yaml.Node) Edits {
	var edits Edits
	if set != nil {
		edits.Set = r.setFields(set)
	}
	for _, n := range r.list(remove, "header fields") {
		if name, ok := r.fieldName(n); ok {
			edits.Remove = append(edits.Remove, name)
		}
	}
	return edits
}

// setFields reads a mapping of names to values.
func (r *routeReader) setFields(n *yaml.Node) map[string]string {
	if n.Kind != yaml.MappingNode {
		r.fault(n, "header fields must be a mapping of names to values, not %s", kind(n))
		return nil
	}
	set, first := map[string]string{}, map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, ok := r.fieldName(n.Content[i])
		value, valueOK := r.text(n.Content[i+1], "a header field")
		switch {
		case !ok || !valueOK:
		case first[name] != nil:
			r.fault(n.Content[i], "header field %s is given twice, first at %s", quote(name), place(first[name]))
		case !fields.ValidValue(value) || len(value) > maxSetValue:
			r.fault(n.Content[i+1], "the value of header field %s is too long, or has control characters or spaces around it", quote(name))
		default:
			set[name], first[name] = value, n.Content[i]
		}
	}
	return set
}

// fieldName reads the name of a field that a route may change.
func (r *routeReader) fieldName(n *yaml.Node) (name string, ok bool) {
	text, ok := r.text(n, "the name of a header field")
	if !ok {
		return "", false
	}
	if !fields.Editable(text) {
		r.fault(n, "header field %s cannot be changed: it is no name, or tells who asks, or concerns the connection", quote(text))
		return "", false
	}
	return http.CanonicalHeaderKey(text), true
}

// addPrefix reads what goes before the path that is forwarded.
func (r *routeReader) addPrefix(n *yaml.Node) string {
	text, ok := r.text(n, "add_prefix")
	if !ok {
		return ""
	}
	if err := canonical.ValidPrefix(text); err != nil {
		r.fault(n, "prefix %s cannot be added: %v", quote(text), err)
		return ""
	}
	return text
}

// hostHeader reads preserve_host and host_header, of which one at most may be
// given. preserve is true without either.
func (r *routeReader) hostHeader(preserveNode, nameNode *yaml.Node) (preserve bool, name string) {
	preserve = preserveNode == nil || r.boolean(preserveNode, "preserve_host")
	text, ok := r.text(nameNode, "host_header")
	if !ok {
		return preserve, ""
	}
	if preserveNode != nil {
		r.fault(nameNode, "host_header and preserve_host exclude each other")
	}
	if _, err := canonical.Host(text); err != nil {
		r.fault(nameNode, "host_header %s is not a host", quote(text))
		return false, ""
	}
	return false, text
}
