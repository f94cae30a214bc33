package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"snowgate/canonical"
	"snowgate/fields"
)

// Edits are changes of a header that a route makes. Fields that [fields.Editable]
// does not name are refused by [NewTable]: nothing here can touch what tells a
// service who asks.
type Edits struct {
	// Set holds fields by name. They replace whatever is there under that name.
	Set map[string]string
	// Remove holds the names of fields that are taken out, before others are set.
	Remove []string
}

// compile returns a copy of e with canonical names.
func (e Edits) compile() (Edits, error) {
	var faults []error
	clean := Edits{Set: make(map[string]string, len(e.Set))}
	for name, value := range e.Set {
		if !fields.Editable(name) || !fields.ValidValue(value) {
			faults = append(faults, fmt.Errorf("header field %q cannot be set, or not to %q", name, value))
		}
		clean.Set[http.CanonicalHeaderKey(name)] = value
	}
	for _, name := range e.Remove {
		if !fields.Editable(name) {
			faults = append(faults, fmt.Errorf("header field %q cannot be removed", name))
		}
		clean.Remove = append(clean.Remove, http.CanonicalHeaderKey(name))
	}
	return clean, errors.Join(faults...)
}

// remove takes the fields out of h, a header or a trailer, in every spelling: a
// service that cannot tell X_Env from X-Env would believe a client's.
func (e *Edits) remove(h http.Header) {
	if len(e.Remove)+len(e.Set) == 0 {
		return
	}
	for name := range h {
		if e.touches(name) {
			delete(h, name)
		}
	}
}

func (e *Edits) touches(name string) bool {
	for set := range e.Set {
		if fields.Same(name, set) {
			return true
		}
	}
	return slices.ContainsFunc(e.Remove, func(removed string) bool { return fields.Same(name, removed) })
}

// apply changes h.
func (e *Edits) apply(h http.Header) {
	e.remove(h)
	for name, value := range e.Set {
		h[name] = []string{value}
	}
}

// compileEdits checks and copies what a route changes.
func (r *Route) compileEdits() error {
	var requestFault, answerFault, hostFault, prefixFault error
	r.EditRequest, requestFault = r.EditRequest.compile()
	r.EditAnswer, answerFault = r.EditAnswer.compile()
	if r.AddPrefix != "" {
		if err := canonical.ValidPrefix(r.AddPrefix); err != nil {
			prefixFault = fmt.Errorf("prefix %q: %w", r.AddPrefix, err)
		}
		r.AddPrefix = strings.TrimSuffix(r.AddPrefix, "/") // of "/" nothing is left
	}
	if _, err := canonical.Host(r.HostHeader); r.HostHeader != "" && err != nil {
		hostFault = fmt.Errorf("host header %q: %w", r.HostHeader, err)
	}
	if r.HostHeader != "" && r.UpstreamHost {
		hostFault = errors.New("the host header is either a name or that of the upstream")
	}
	return errors.Join(requestFault, answerFault, prefixFault, hostFault)
}

// host returns what Host says to the service at t.
func (f *flight) host(t *target) string {
	switch {
	case f.route.HostHeader != "":
		return f.route.HostHeader
	case f.route.UpstreamHost:
		return t.host
	default:
		return f.request.Host
	}
}
