package fields_test

import (
	"testing"

	"snowgate/integration/lineartest"
	"snowgate/internal/request/fields"
)

// TestLinear: checking the names and values of fields takes time linear in their size.
func TestLinear(t *testing.T) {
	kind := func(text string) { lineartest.Keep(fields.KindOf(text) == fields.Ordinary) }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("KindOf, letters", "", "a", "", kind),
		lineartest.Strings("KindOf, one of the gateway's own, spelt with marks", "X", "_.-", "Snowgate-Client", kind),
		lineartest.Strings("KindOf, a family", "X-Snowgate-", "a-", "", kind),
		lineartest.Strings("KindOf, capitals", "X-FORWARDED-", "A", "", kind),
		lineartest.Strings("Same", "", "A_", "", func(text string) { lineartest.Keep(fields.Same(text, text+"-")) }),
		lineartest.Strings("Editable", "X", "-a", "", func(text string) { lineartest.Keep(fields.Editable(text)) }),
		lineartest.Strings("ValidValue", "", "a ", "", func(text string) { lineartest.Keep(fields.ValidValue(text)) }),
	})
}
