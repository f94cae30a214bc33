package route

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"snowgate/internal/request/fields"
	"snowgate/proxy/http1"
)

// Edits are changes that a route makes to a header. [NewTable] refuses fields that
// [fields.Editable] does not allow, so edits cannot touch identity fields.
type Edits struct {
	// Set holds fields by name. They replace all fields of that name.
	Set map[string]string
	// Remove holds names of fields that are removed before Set applies.
	Remove []string
}

// compile returns a copy of e with canonical names.
func (e Edits) compile() (Edits, error) {
	if e.None() {
		return Edits{}, nil
	}
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

// None reports whether nothing is to be done, as by nil.
func (e *Edits) None() bool { return e == nil || len(e.Remove)+len(e.Set) == 0 }

// orNil returns e, but nil if nothing is to be done.
func (e *Edits) orNil() *Edits {
	if e.None() {
		return nil
	}
	return e
}

// RemoveFrom removes the fields from list, a header or a trailer, in every spelling: a service that
// does not distinguish X_Env from X-Env would trust the field of a client.
func (e *Edits) RemoveFrom(list []http1.Field) []http1.Field {
	if e.None() {
		return list
	}
	return slices.DeleteFunc(list, func(f http1.Field) bool { return e.touches(f.Name) })
}

func (e *Edits) touches(name string) bool {
	for set := range e.Set {
		if fields.Same(name, set) {
			return true
		}
	}
	return slices.ContainsFunc(e.Remove, func(removed string) bool { return fields.Same(name, removed) })
}

// Apply applies the edits to list, which it changes, and returns the result.
func (e *Edits) Apply(list []http1.Field) []http1.Field {
	if e.None() {
		return list
	}
	list = e.RemoveFrom(list)
	for name, value := range e.Set {
		list = append(list, http1.Field{Name: name, Value: value})
	}
	return list
}
