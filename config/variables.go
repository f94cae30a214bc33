package config

import "reflect"

// Variable describes one environment variable.
type Variable struct {
	Name    string // with [Prefix]
	Default string // empty if there is none
	Meaning string
	Secret  bool // its value is never shown
}

// allVariables is made once: the fields of Config do not change.
var allVariables = reflectVariables()

// Variables returns all environment variables in the order of [Config].
func Variables() []Variable { return allVariables }

func reflectVariables() []Variable {
	var list []Variable
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		name := field.Tag.Get("env")
		if name == "" || name == "-" {
			continue
		}
		list = append(list, Variable{
			Name:    Prefix + name,
			Default: field.Tag.Get("envDefault"),
			Meaning: field.Tag.Get("doc"),
			Secret:  isSecret(field.Type),
		})
	}
	return list
}

func isSecret(t reflect.Type) bool {
	return t == reflect.TypeFor[Secret]() || t == reflect.TypeFor[Key]()
}

// secretVariable reports whether the variable of that full name is secret.
func secretVariable(name string) bool {
	for _, v := range allVariables {
		if v.Name == name {
			return v.Secret
		}
	}
	return false
}
