package admin

import (
	"net/http"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestOpenAPIHasEveryOperation: the document and the handlers have the same operations.
func TestOpenAPIHasEveryOperation(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Errorf("openapi.json: %v", err)
	}
	var described, served []string
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			described = append(described, method+" "+path)
			if operation.OperationID == "" || operation.Summary == "" {
				t.Errorf("%s %s has no operationId or no summary", method, path)
			}
		}
	}
	for _, resource := range newBench(t).api.resources() {
		for method := range resource.methods {
			served = append(served, method+" "+resource.path)
		}
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described %q\nserved    %q", described, served)
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	got := newBench(t).do("GET", "/openapi.json", "")
	if got.Code != http.StatusOK || got.object()["openapi"] != "3.1.0" {
		t.Errorf("openapi.json: %d %.80s", got.Code, got.Body)
	}
}
