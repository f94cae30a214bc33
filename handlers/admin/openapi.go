package admin

import (
	_ "embed" // the OpenAPI document
	"net/http"
)

// document is the description of the API in OpenAPI 3.1.
//
//go:embed openapi.json
var document []byte

// readOpenAPI serves document.
func readOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(document)
	return nil
}
