package tokens_test

import (
	"strings"
	"testing"

	"snowgate/integration/lineartest"
	"snowgate/tokens"
)

// TestLinear: checking tokens takes time linear in their size. For a text of the length of a token,
// most of the time goes into the tag.
func TestLinear(t *testing.T) {
	bearer := func(text string) { _, _ = tokens.ParseBearer(text) }
	w := newFixture()
	validate := func(text string) { _, _ = w.Validate(t.Context(), text) }
	revoke := func(text string) { _ = w.Revoke(t.Context(), text, "orders") }
	id := tokens.Prefix + strings.Repeat("0", 10) + "1_"
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("ParseBearer, digits", id, "a", "", bearer),
		lineartest.Strings("ParseBearer, prefixes", "", "sgt_", "", bearer),
		lineartest.Strings("ParseBearer, NUL", id, "\x00", "", bearer),
		lineartest.Strings("ParseKey", "", "YWJj", "", func(text string) { _, _ = tokens.ParseKey(text) }),
		lineartest.Strings("Validate, digits", id, "a", "", validate),
		lineartest.Strings("Validate, prefixes", "", "sgt_", "", validate),
		lineartest.Strings("Revoke, digits", id, "a", "", revoke),
	})
}
