package scope_test

import (
	"testing"

	"snowgate/integration/lineartest"
	"snowgate/internal/scope"
)

// TestLinear: the work of what reads lists of scopes grows as these do.
func TestLinear(t *testing.T) {
	parse := func(text string) { _, _ = scope.Parse(text) }
	granted := scope.Of("orders.read", "orders.write")
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("Parse, one name", "", "a", "", parse),
		lineartest.Numbers("Parse, names that differ", "a", " a%d", "", parse),
		lineartest.Strings("Parse, one name many times", "a", " a", "", parse),
		lineartest.Numbers("Parse, a fault at the end", "a", " a%d", " \x00", parse),
		lineartest.Numbers("Contains, in a short list", "a", " a%d", "", func(text string) { lineartest.Keep(granted.Contains(scope.List(text))) }),
		lineartest.Numbers("Has", "a", " a%d", "", func(text string) { lineartest.Keep(scope.List(text).Has("b")) }),
		lineartest.Numbers("Without", "a", " a%d", "", func(text string) { scope.List(text).Without("a7") }),
	})
}
