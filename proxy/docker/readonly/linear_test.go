package readonly

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"snowgate/integration/lineartest"
)

// TestLinear: reading targets and Docker's lists takes time linear in their size.
func TestLinear(t *testing.T) {
	asked := func(text string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RequestURI = text
		_, _ = target(r)
	}
	parameters := func(text string) {
		given, _ := url.ParseQuery(text)
		query(given)
	}
	containers := func(text string) { _ = json.Unmarshal([]byte(text), new([]container)) }
	networks := func(text string) { _ = json.Unmarshal([]byte(text), new([]network)) }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("target, a version", "/v1.", "1", "/containers/json", asked),
		lineartest.Strings("target, a query", "/containers/json?", "a=b&", "", asked),
		lineartest.Strings("target, segments", "/containers", "/json", "", asked),
		lineartest.Numbers("query, parameters", "filters=a", "&a%d=b", "", parameters),
		lineartest.Strings("query, filters", "filters=a", "&filters=b", "", parameters),
		lineartest.Numbers("containers", `[{"Id":"a"}`, `,{"Id":"%d","Labels":{"snowgate.path":"/a","b":"c"}}`, `]`, containers),
		lineartest.Numbers("labels of a container", `[{"Id":"a","Labels":{"a":"b"`, `,"snowgate.a%d":"b"`, `}}]`, containers),
		lineartest.Numbers("networks of a container", `[{"Id":"a","NetworkSettings":{"Networks":{"a":{}`, `,"a%d":{}`, `}}}]`, containers),
		lineartest.Strings("nested labels", `[{"Id":"a","Labels":`, `{"a":`, ``, containers),
		{Name: "nested containers", Prepare: func(size int) func() {
			text := strings.Repeat(`[{"Labels":`, size/11) + "1" + strings.Repeat("}]", size/11)
			return func() { containers(text) }
		}},
		lineartest.Numbers("networks", `[{"Name":"a"}`, `,{"Name":"%d","IPAM":{"Config":[{"Subnet":"10.0.0.0/8"}]}}`, `]`, networks),
	})
}
