package handlers

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/integration/lineartest"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// TestLinear: reading credentials and forms, and refusing them, takes time linear in their size.
func TestLinear(t *testing.T) {
	basic := func(text string) { _, _ = parseBasic("Basic " + base64.StdEncoding.EncodeToString([]byte(text))) }
	raw := func(text string) { _, _ = parseBasic(text) }
	form := func(text string) { _, _ = parseForm(text) }
	formType := func(text string) { _ = checkFormType([]string{text}) }
	post := func(authorization, body string) {
		h := &OAuth{Clients: clients.NewRegistry(time.Hour), Issuer: "https://gw.example", Now: time.Now}
		r := httptest.NewRequest(http.MethodPost, "/oauth2/token", strings.NewReader(body))
		r = r.WithContext(exchange.NewContext(r.Context(), &exchange.Exchange{}))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", authorization)
		problem.OAuthHandlerFunc(h.Token).ServeHTTP(httptest.NewRecorder(), r)
	}
	whole := func(body string) { post("Basic YTpi", body) }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("parseBasic, base64", "Basic ", "YWJj", "", raw),
		lineartest.Strings("parseBasic, padding", "Basic YQ", "=", "", raw),
		lineartest.Strings("parseBasic, spaces", "Basic", " ", "", raw),
		lineartest.Strings("parseBasic, a scheme", "", "Basic", "", raw),
		lineartest.Strings("parseBasic, colons", "", ":", "", basic),
		lineartest.Strings("parseBasic, encoded text", "a:", "%41", "", basic),
		lineartest.Strings("parseBasic, wrongly encoded text", "a:", "%4", "", basic),
		lineartest.Strings("parseBasic, plus signs", "+", "+", ":+", basic),
		lineartest.Numbers("parseForm, parameters", "", "a%d=b&", "", form),
		lineartest.Numbers("parseForm, resources", "a=b", "&resource=https://a/%d", "", form),
		lineartest.Strings("parseForm, one parameter many times", "a=b", "&a=b", "", form),
		lineartest.Strings("parseForm, ampersands", "", "&", "", form),
		lineartest.Strings("parseForm, equals signs", "", "=", "", form),
		lineartest.Strings("parseForm, encoded text", "a=", "%C3%A4", "", form),
		lineartest.Strings("parseForm, faults", "", "%zz&", "", form),
		lineartest.Strings("parseForm, semicolons", "", "a;b=c&", "", form),
		lineartest.Strings("parseForm, wrong UTF-8", "a=", "%ff", "", form),
		lineartest.Numbers("checkFormType, parameters", "application/x-www-form-urlencoded", ";a%d=b", "", formType),
		lineartest.Numbers("checkFormType, parts of a parameter", "application/x-www-form-urlencoded", ";a*%d=b", "", formType),
		lineartest.Strings("checkFormType, encoded text", "application/x-www-form-urlencoded;a*=utf-8''", "%41", "", formType),
		lineartest.Strings("checkFormType, a quoted text", `application/x-www-form-urlencoded;a="`, `\a`, `"`, formType),
		lineartest.Strings("checkFormType, spaces", "application/x-www-form-urlencoded;", " ", "", formType),
		lineartest.Strings("checkFormType, slashes", "a", "/", "", formType),
		lineartest.Numbers("Token, parameters", "grant_type=client_credentials", "&a%d=b", "", whole),
		lineartest.Numbers("Token, resources", "grant_type=client_credentials", "&resource=%d", "", whole),
		lineartest.Numbers("Token, scopes", "grant_type=client_credentials&scope=a", "+a%d", "", whole),
		lineartest.Strings("Token, a long secret", "grant_type=client_credentials&client_id=a&client_secret=", "sgs_", "", whole),
		lineartest.Strings("Token, a long id in Basic", "Basic ", "YWJj", "", func(text string) { post(text, "grant_type=client_credentials") }),
	})
}
