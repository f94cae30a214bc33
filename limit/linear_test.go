package limit_test

import (
	"testing"

	"snowgate/integration/lineartest"
	"snowgate/limit"
)

// TestLinear: the work of what reads a rate grows as it does.
func TestLinear(t *testing.T) {
	rate := func(text string) { _, _ = limit.ParseRate(text) }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("ParseRate, digits", "", "1", "/s", rate),
		lineartest.Strings("ParseRate, zeros", "0", "0", "1/s", rate),
		lineartest.Strings("ParseRate, a unit", "1/", "s", "", rate),
		lineartest.Strings("ParseRate, slashes", "1", "/", "s", rate),
	})
}
