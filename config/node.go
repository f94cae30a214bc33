package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v4"
)

// maxFaults bounds the list for one file: a file of another kind would
// otherwise make a fault of every line.
const maxFaults = 200

// maxElements bounds the lists of texts within a client or route, whose elements
// are compared with one another.
const maxElements = 1000

// decoder walks the nodes of a YAML document and collects what is wrong with them. Its methods take
// nil for a value that is not there and answer with the zero value, so that a walk reaches the end
// after any fault.
//
// The library can decode into structs by itself, but then the position of a
// value is gone by the time its meaning is judged.
type decoder struct {
	path   string
	labels bool // what is read are labels of a container, named in the anchors of the nodes
	faults Faults
	notes  Faults
}

// fault records what is wrong at n.
func (d *decoder) fault(n *yaml.Node, format string, args ...any) {
	if len(d.faults) == maxFaults {
		d.faults = append(d.faults, Fault{Path: d.path, Line: math.MaxInt32, Message: "and more"})
	}
	if len(d.faults) < maxFaults {
		d.faults = append(d.faults, d.at(n, format, args...))
	}
}

// note records a remark on n, which is no fault.
func (d *decoder) note(n *yaml.Node, format string, args ...any) {
	if len(d.notes) < maxFaults {
		d.notes = append(d.notes, d.at(n, format, args...))
	}
}

// at returns a fault of n, which is a place of the file or belongs to a label.
func (d *decoder) at(n *yaml.Node, format string, args ...any) Fault {
	if d.labels {
		return Fault{Variable: quoteLabel(n.Anchor), Message: fmt.Sprintf(format, args...)}
	}
	return Fault{Path: d.path, Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...)}
}

// plain reports whether the tree below n holds plain values only. Anchors and
// aliases would let one place of the file change the meaning of another, and a
// few lines unfold to gigabytes; tags would change the type of a value.
func (d *decoder) plain(n *yaml.Node) bool {
	ok := true
	switch {
	case n.Kind == yaml.AliasNode:
		d.fault(n, "aliases are not allowed; write the value out")
		return false
	case n.Anchor != "":
		d.fault(n, "anchors are not allowed")
		ok = false
	case n.Style&yaml.TaggedStyle != 0:
		d.fault(n, "tags are not allowed")
		ok = false
	}
	for _, child := range n.Content {
		ok = d.plain(child) && ok
	}
	return ok
}

// object is a mapping: its values by key.
type object struct {
	node *yaml.Node
	what string
	keys map[string]*yaml.Node
}

// object reads n as a mapping of known keys. what names it in faults.
func (d *decoder) object(n *yaml.Node, what string, known ...string) object {
	o := object{node: n, what: what, keys: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		d.fault(n, "%s must be a mapping of keys to values, not %s", what, kind(n))
		o.node = nil
		return o
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		switch earlier := first[name]; {
		case key.Kind != yaml.ScalarNode:
			d.fault(key, "a key of %s must be a name, not %s", what, kind(key))
			continue
		case earlier != nil:
			d.fault(key, "key %s is given twice, first at %s", quote(name), place(earlier))
			continue
		case !slices.Contains(known, name):
			d.fault(key, "unknown key %s in %s%s", quote(name), what, Suggest(name, "", known))
		default:
			o.keys[name] = value
		}
		first[name] = key
	}
	return o
}

// required returns the value of key and records a fault if there is none.
func (d *decoder) required(o object, key string) *yaml.Node {
	n := o.keys[key]
	if n == nil && o.node != nil {
		d.fault(o.node, "%s has no %s", o.what, key)
	}
	return n
}

// list returns the elements of n. Nothing at all, as in "scopes:", is an empty
// list.
func (d *decoder) list(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case n == nil || isNull(n):
		return nil
	case n.Kind != yaml.SequenceNode:
		d.fault(n, "%s must be a list, not %s", what, kind(n))
		return nil
	}
	return n.Content
}

// text returns the text of a value as it is written; ok is false after a fault
// and if there is no value.
func (d *decoder) text(n *yaml.Node, what string) (text string, ok bool) {
	switch {
	case n == nil:
		return "", false
	case isNull(n):
		d.fault(n, "%s has no value", what)
		return "", false
	case n.Kind != yaml.ScalarNode:
		d.fault(n, "%s must be a text, not %s", what, kind(n))
		return "", false
	}
	return n.Value, true
}

// unique returns the texts of a list of distinct texts that satisfy valid;
// wanted describes those.
func (d *decoder) unique(n *yaml.Node, what, wanted string, valid func(string) bool) []string {
	var texts []string
	seen := make(map[string]bool)
	elements := d.list(n, what)
	if len(elements) > maxElements {
		d.fault(elements[maxElements], "%s may have %d elements at most", what, maxElements)
		return nil
	}
	for _, element := range elements {
		text, ok := d.text(element, "an element of "+what)
		switch {
		case !ok:
		case !valid(text):
			d.fault(element, "%s is not %s", quote(text), wanted)
		case seen[text]:
			d.fault(element, "%s is listed twice", quote(text))
		default:
			seen[text] = true
			texts = append(texts, text)
		}
	}
	return texts
}

// boolean reads true or false; nothing is false.
func (d *decoder) boolean(n *yaml.Node, what string) bool {
	if n == nil {
		return false
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		d.fault(n, "%s must be true or false", what)
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// duration reads a duration as Go writes them; nothing is otherwise.
func (d *decoder) duration(n *yaml.Node, what string, otherwise time.Duration) time.Duration {
	text, ok := d.text(n, what)
	if !ok {
		return otherwise
	}
	value, err := time.ParseDuration(text)
	switch {
	case err != nil:
		d.fault(n, "%s is not a duration such as 250ms, 90s or 1h30m", quote(text))
	case value <= 0:
		d.fault(n, "%s is not a positive duration", quote(text))
	default:
		return value
	}
	return otherwise
}

// instant reads an RFC 3339 time; nothing is the zero time.
func (d *decoder) instant(n *yaml.Node, what string) time.Time {
	text, ok := d.text(n, what)
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d.fault(n, "%s is not an RFC 3339 time such as 2027-01-01T00:00:00Z", quote(text))
	}
	return t
}

var sizePattern = regexp.MustCompile(`^[0-9]+(\.[0-9]+)? ?([kKMGT]i?)?B?$`)

// size reads a number of bytes, such as 10MiB (binary), 10MB (decimal) or
// 1048576; nothing is otherwise.
func (d *decoder) size(n *yaml.Node, what string, otherwise int64) int64 {
	text, ok := d.text(n, what)
	if !ok {
		return otherwise
	}
	value, err := humanize.ParseBytes(text)
	if err != nil || !sizePattern.MatchString(text) || value > math.MaxInt64 {
		d.fault(n, "%s is not a size such as 10MiB, 10MB or 1048576", quote(text))
		return otherwise
	}
	return int64(value)
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// kind names what n is, for people.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if isNull(n) {
		return "nothing"
	}
	return "a single value"
}

// place names the position of n within the same file, or the label it belongs to.
func place(n *yaml.Node) string {
	if n.Anchor != "" { // which no file may have
		return quoteLabel(n.Anchor)
	}
	return fmt.Sprintf("%d:%d", n.Line, n.Column)
}
