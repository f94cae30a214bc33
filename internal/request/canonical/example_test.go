package canonical_test

import (
	"fmt"

	"snowgate/internal/request/canonical"
)

func ExampleParsePath() {
	for _, raw := range []string{"/orders/a%3Ab", "/public/%2e%2e/orders", "/public/..;/orders", "/orders%2Fx"} {
		path, err := canonical.ParsePath(raw)
		fmt.Println(path.Match, path.EncodedSlash, err)
	}
	// Output:
	// /orders/a:b false <nil>
	//  false the path percent-encodes a character that needs no encoding
	//  false the path has a dot segment
	// /orders%2Fx true <nil>
}
