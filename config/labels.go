package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// LabelPrefix starts the name of every label of a container that is meant for the
// gateway.
const LabelPrefix = "snowgate."

// Bounds of what the labels of one container may say.
const (
	maxLabels     = 200     // that start with LabelPrefix
	maxLabelName  = 256     // bytes
	maxLabelValue = 8 << 10 // bytes
)

// Labels is what the labels of a container say: the route to its service, and
// where in the container that is.
type Labels struct {
	// Enabled is the label "enable". Without it nothing else is looked at.
	Enabled bool
	// Route is as in the file; it has no Upstreams.
	Route Route
	// Scheme is http or h2c.
	Scheme string
	// Port is the port of the service, 0 if no label tells.
	Port uint16
	// Network is the name of the network to reach it on, empty if no label tells.
	Network string
}

// labelLists are the keys of a route whose value is a list, which a label
// separates by commas or spaces.
var labelLists = []string{
	"methods", "scopes", "remove_request_headers", "remove_response_headers",
	"cors.origins", "cors.methods", "cors.request_headers", "cors.exposed_headers",
}

// labelOnly are the keys that only labels have.
var labelOnly = []string{"enable", "scheme", "port", "network"}

// ReadLabels reads the labels of a container. The part behind [LabelPrefix] is a
// key of a route of the file, with the same values, bounds and faults; a key
// within a key follows behind a dot, as in snowgate.health.path. name is that of
// the route if no label tells another. Labels with another prefix do not count.
// An error is of type [Faults] and names the labels.
func ReadLabels(name string, labels map[string]string) (Labels, error) {
	own, faults := ownLabels(labels)
	if len(faults) > 0 {
		return Labels{}, faults
	}
	r := &routeReader{
		decoder: &decoder{labels: true},
		names:   map[string]*yaml.Node{}, places: map[string]*yaml.Node{}, checks: map[url.URL]checkedAt{},
	}
	return r.readLabels(name, own)
}

// ownLabels returns the labels that are the gateway's, by what follows the prefix,
// or what keeps them from being read at all.
func ownLabels(labels map[string]string) (own map[string]string, faults Faults) {
	own = make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		key, ours := strings.CutPrefix(name, LabelPrefix)
		switch {
		case !ours || len(faults) == maxFaults:
		case len(name) > maxLabelName:
			faults = append(faults, Fault{Variable: quote(name), Message: fmt.Sprintf("the name has %d bytes; %d are allowed", len(name), maxLabelName)})
		case len(value) > maxLabelValue:
			faults = append(faults, Fault{Variable: quoteLabel(name), Message: fmt.Sprintf("the value has %d bytes; %d are allowed", len(value), maxLabelValue)})
		case !legibleText(name) || !legibleText(value):
			faults = append(faults, Fault{Variable: quoteLabel(name), Message: "has a control character, or is not UTF-8"})
		default:
			own[key] = value
		}
	}
	if len(own) > maxLabels {
		faults = append(faults, Fault{Variable: LabelPrefix + "*", Message: fmt.Sprintf("there are %d labels; %d are allowed", len(own), maxLabels)})
	}
	return own, faults.sorted()
}

// readLabels reads own, the labels by what follows the prefix.
func (r *routeReader) readLabels(name string, own map[string]string) (Labels, error) {
	only := func(key string) *yaml.Node {
		if value, ok := own[key]; ok {
			return labelNode(key, value)
		}
		return nil
	}
	var read Labels
	if read.Enabled = r.boolean(only("enable"), "enable"); !read.Enabled {
		return read, r.labelFaults()
	}
	read.Scheme = r.scheme(only("scheme"))
	read.Port = r.port(only("port"))
	read.Network, _ = r.text(only("network"), "network")
	root := r.tree(own)
	if _, named := own["name"]; !named {
		root.Content = append(root.Content, labelNode("name", "name"), labelNode("name", name))
	}
	read.Route = r.route(root)
	if read.Scheme == "h2c" && read.Route.WebSocket {
		r.fault(only("scheme"), "a WebSocket needs HTTP/1.1, and the scheme is h2c")
	}
	if err := r.labelFaults(); err != nil {
		return Labels{}, err
	}
	return read, nil
}

// labelFaults returns what was found to be wrong, or nil.
func (r *routeReader) labelFaults() error {
	if len(r.faults) == 0 {
		return nil
	}
	return r.faults.sorted()
}

// tree returns own as the mapping that a route of the file is.
func (r *routeReader) tree(own map[string]string) *yaml.Node {
	root := &yaml.Node{Kind: yaml.MappingNode, Anchor: LabelPrefix + "path"} // the one that may be missing
	groups := map[string]*yaml.Node{}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if slices.Contains(labelOnly, key) {
			continue
		}
		if key == "upstreams" {
			r.fault(labelNode(key, ""), "the container itself is the upstream; a label cannot name another")
			continue
		}
		value := labelNode(key, own[key])
		if slices.Contains(labelLists, key) {
			value = listNode(key, own[key])
		}
		group, inner, nested := strings.Cut(key, ".")
		if !nested {
			root.Content = append(root.Content, labelNode(key, key), value)
			continue
		}
		if groups[group] == nil {
			groups[group] = &yaml.Node{Kind: yaml.MappingNode, Anchor: LabelPrefix + key}
			root.Content = append(root.Content, labelNode(key, group), groups[group])
		}
		groups[group].Content = append(groups[group].Content, labelNode(key, inner), value)
	}
	return root
}

// labelNode returns a value of the label for key. The label takes the place of an
// anchor, which no value of a file may have: faults name it, see decoder.at.
func labelNode(key, value string) *yaml.Node {
	tag := "!!str"
	switch strings.ToLower(value) {
	case "":
		tag = "!!null"
	case "true", "false":
		tag = "!!bool"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, Anchor: LabelPrefix + key}
}

// listNode returns the list in the value of a label.
func listNode(key, value string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Anchor: LabelPrefix + key}
	for element := range strings.FieldsFuncSeq(value, func(c rune) bool { return c == ',' || c == ' ' }) {
		n.Content = append(n.Content, labelNode(key, element))
	}
	return n
}

// quoteLabel returns the name of a label as it is if it is a usual one.
func quoteLabel(name string) string {
	if legibleText(name) && !strings.ContainsAny(name, " \"") && len(name) <= 64 && !looksSecret(name) {
		return name
	}
	return quote(name)
}

// legibleText reports whether text is UTF-8 without control characters.
func legibleText(text string) bool {
	return strings.ToValidUTF8(text, "\x00") == text && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// scheme reads what is spoken with the container.
func (r *routeReader) scheme(n *yaml.Node) string {
	text, ok := r.text(n, "scheme")
	switch {
	case !ok:
		return "http"
	case text != "http" && text != "h2c":
		r.fault(n, "scheme %s is neither http nor h2c; a certificate cannot be checked against the address of a container, so for https the file has to name the service", quote(text))
	}
	return text
}

// port reads the port of the service.
func (r *routeReader) port(n *yaml.Node) uint16 {
	text, ok := r.text(n, "port")
	if !ok {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		r.fault(n, "port %s is not a number from 1 to 65535", quote(text))
	}
	return uint16(port)
}

// checkDockerHost looks at the shape of an address of the Docker API. TLS is not
// spoken: the API is reached by a socket, or by a proxy on a network of its own.
func checkDockerHost(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil || u.Opaque != "" || strings.ContainsAny(text, "?#"):
	case u.Scheme == "unix" && u.Host == "" && len(u.Path) > 1:
		return ""
	case u.Scheme == "tcp" && validPort(u) && u.Port() != "" && (u.Path == "" || u.Path == "/"):
		return ""
	}
	return "is neither unix:///path/to/docker.sock nor tcp://host:port"
}
