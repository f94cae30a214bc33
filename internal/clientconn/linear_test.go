package clientconn

import (
	"testing"

	"snowgate/integration/lineartest"
)

// TestLinear: examining the bytes of a connection takes time linear in their number.
func TestLinear(t *testing.T) {
	bytewise := func(text string) {
		var r rester
		for i := range len(text) {
			r.look([]byte(text[i : i+1]))
		}
	}
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("look, at once", "", "PRI", "", func(text string) { new(rester).look([]byte(text)) }),
		lineartest.Strings("look, byte by byte", "", "PRI", "", bytewise),
		lineartest.Strings("look, another version", "", "GET", "", bytewise),
	})
}
