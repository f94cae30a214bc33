package integration_test

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

// site is a gateway in front of two services that keep every byte they get: one
// that is only reached through protected routes, one only through public ones.
// Its routes are bound to hosts, so that one gateway holds several arrangements:
//
//	beside.test   /svc protected, /public public, nothing else
//	below.test    /svc protected, a public catch-all / around it
//	127.0.0.1     /canary protected
type site struct {
	*gatewaytest.Gateway
	protected, public, canary *gatewaytest.Recorder
	worker                    gatewaytest.Credentials
	token                     string
	clients                   map[string]string // by token id
	answered, delivered       map[string]bool   // request ids of raw conversations, see wantNotSmuggled
}

// arrangements are the hosts on which /svc is protected and /public is public.
var arrangements = []string{"beside.test", "below.test"}

const siteRoutes = `
  - {name: beside-svc, host: beside.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use]}
  - {name: beside-public, host: beside.test, path: /public, upstreams: [$PUBLIC], public: true}
  - {name: below-svc, host: below.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use]}
  - {name: below-all, host: below.test, path: /, upstreams: [$PUBLIC], public: true}
  - {name: canary, host: 127.0.0.1, path: /canary, upstreams: [$CANARY], scopes: [svc.use]}
`

// newSite starts a gateway with the routes of every site and further ones, in
// which $PROTECTED and $PUBLIC stand for the services.
func newSite(t testing.TB, routes string, clients ...gatewaytest.Credentials) *site {
	t.Helper()
	return newSiteWith(t, gatewaytest.Options{}, routes, clients...)
}

func newSiteWith(t testing.TB, o gatewaytest.Options, routes string, clients ...gatewaytest.Credentials) *site {
	t.Helper()
	s := &site{
		answered:  make(map[string]bool),
		delivered: make(map[string]bool),
		protected: gatewaytest.NewRecorder(t, ""),
		public:    gatewaytest.NewRecorder(t, ""),
		canary:    gatewaytest.NewRecorder(t, ""),
		worker:    gatewaytest.NewClient("worker", "svc.use"),
		clients:   map[string]string{},
	}
	config := "clients:\n" + s.worker.YAML
	for _, client := range clients {
		config += client.YAML
	}
	services := strings.NewReplacer("$PROTECTED", s.protected.URL, "$PUBLIC", s.public.URL, "$CANARY", s.canary.URL)
	o.Config = config + "routes:" + services.Replace(siteRoutes+routes)
	o.Env = append(o.Env, "GORACE=atexit_sleep_ms=0") // else every race-built gateway takes a second to end
	s.Gateway = gatewaytest.Start(t, o)
	s.token = s.grant(s.worker)
	return s
}

// grant gets a token and remembers whose it is.
func (s *site) grant(client gatewaytest.Credentials, form ...string) string {
	token := s.Token(client, form...)
	s.clients[publicID(token)] = client.ID
	return token
}

// publicID returns the public part of a token.
func publicID(token string) string { return token[len("sgt_") : len("sgt_")+11] }

// settle ends a case: the gateway still serves, a request that came to the
// protected service was judged, and none that came to the public one says
// otherwise or could be read as one for the protected service. It returns what
// the services received and forgets it.
func (s *site) settle(t testing.TB, what string) (protected, public []string) {
	t.Helper()
	if got := s.Get("/canary", s.token); got.StatusCode != http.StatusOK {
		t.Errorf("%s: the canary afterwards = %d %s, want 200", what, got.StatusCode, got.Body)
	}
	protected, public = s.protected.Requests(), s.public.Requests()
	for _, raw := range slices.Concat(protected, s.canary.Requests()) {
		if fault := s.unjudged(raw); fault != "" {
			t.Errorf("%s: the protected service received a request with %s: %q", what, fault, raw)
		}
	}
	for _, raw := range public {
		if fault := claims(raw); fault != "" {
			t.Errorf("%s: the public service received a request with %s: %q", what, fault, raw)
		}
	}
	s.protected.Reset()
	s.public.Reset()
	s.canary.Reset()
	return protected, public
}

// untouched ends a case in which nothing may have reached any service.
func (s *site) untouched(t testing.TB, what string) {
	t.Helper()
	if protected, public := s.settle(t, what); len(protected)+len(public) > 0 {
		t.Errorf("%s: the services received %q and %q, want nothing", what, protected, public)
	}
}

// Field names that tell a service who asks and how the request came to it.
var (
	tokenFields   = []string{"X-Snowgate-Client", "X-Snowgate-Scope", "X-Snowgate-Token-Id", "X-Snowgate-Token-Expires"}
	requestFields = []string{"X-Request-Id", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Traceparent"}
)

// field is one line of a header.
type field struct{ name, value string }

// fieldsOf returns the header of a raw request, line by line.
func fieldsOf(raw string) []field {
	head, _, _ := strings.Cut(raw, "\r\n\r\n")
	_, head, _ = strings.Cut(head, "\r\n")
	var list []field
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		list = append(list, field{name, strings.TrimSpace(value)})
	}
	return list
}

// fold is what CGI-like services make of a field name, and stricter: lower case,
// only letters and digits.
func fold(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		}
		return -1
	}, name)
}

// said returns the value of a field that only the gateway may say. fault tells
// why it cannot be believed: it is missing, or there are others like it.
func said(raw, name string) (value, fault string) {
	lines := 0
	for _, f := range fieldsOf(raw) {
		if fold(f.name) != fold(name) {
			continue
		}
		lines++
		value = f.value
		if !strings.EqualFold(f.name, name) {
			return "", "another spelling of " + name
		}
	}
	if lines != 1 {
		return "", "not exactly one " + name
	}
	return value, ""
}

// unjudged tells what a request lacks that was let through to a protected
// service; empty if it lacks nothing.
func (s *site) unjudged(raw string) string {
	values := map[string]string{}
	for _, name := range slices.Concat(tokenFields, requestFields) {
		value, fault := said(raw, name)
		if fault != "" {
			return fault
		}
		values[name] = value
	}
	if client, issued := s.clients[values["X-Snowgate-Token-Id"]]; !issued || values["X-Snowgate-Client"] != client {
		return "an identity that was never issued"
	}
	return foreign(raw)
}

// claims tells what a request to a public service says that only a judged one
// may say, or that it could be read as one for a protected path.
func claims(raw string) string {
	for _, f := range fieldsOf(raw) {
		if strings.HasPrefix(fold(f.name), "xsnowgate") {
			return "the identity field " + f.name
		}
	}
	for _, name := range requestFields {
		if _, fault := said(raw, name); fault != "" {
			return fault
		}
	}
	if reading := protectedReading(targetOf(raw)); reading != "" {
		return "a target that can be read as " + reading
	}
	return foreign(raw)
}

// foreign tells which field of a forwarded request is not the gateway's although
// its name is, or makes its framing ambiguous.
func foreign(raw string) string {
	framing := 0
	for _, f := range fieldsOf(raw) {
		folded := fold(f.name)
		isOurs := func(name string) bool { return strings.EqualFold(name, f.name) }
		switch {
		case strings.Contains(f.value, "forged"):
			return "the forged field " + f.name
		case strings.HasPrefix(folded, "xsnowgate") && !slices.ContainsFunc(tokenFields, isOurs):
			return "the unknown identity field " + f.name
		case folded == "contentlength" || folded == "transferencoding":
			framing++
		}
	}
	if framing > 1 {
		return "two framings"
	}
	return ""
}

// protectedReading returns a reading of a target that lies in /svc, as some
// service behind the gateway may take it: one that decodes once, merges slashes,
// takes backslashes for slashes, strips ";" parameters, or removes dot segments.
// Empty if there is none. Case counts: /SVC is another path.
func protectedReading(target string) string {
	target, _, _ = strings.Cut(target, "?")
	decoded, err := url.PathUnescape(target)
	if err != nil {
		decoded = target
	}
	for _, reading := range []string{target, decoded} {
		slashed := strings.ReplaceAll(reading, `\`, "/")
		bare := withoutParameters(slashed)
		for _, candidate := range []string{reading, slashed, bare, strings.TrimRight(bare, "\x00")} {
			for _, final := range []string{candidate, path.Clean("/" + candidate)} {
				if final == "/svc" || strings.HasPrefix(final, "/svc/") {
					return final
				}
			}
		}
	}
	return ""
}

// withoutParameters removes what follows a semicolon in each segment.
func withoutParameters(text string) string {
	segments := strings.Split(text, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

// rawGet is a raw GET request on a connection that ends with it. fields are whole
// lines without their ends.
func rawGet(host, target string, fields ...string) string {
	return rawRequest(http.MethodGet, host, target, append(fields, "Connection: close"), "")
}

// rawRequest is a raw request, whatever is wrong with it.
func rawRequest(method, host, target string, fields []string, body string) string {
	head := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, line := range fields {
		head += line + "\r\n"
	}
	return head + "\r\n" + body
}

// bearer is the line that shows a token.
func bearer(token string) string { return "Authorization: Bearer " + token }

// targetOf returns the request target of a raw request.
func targetOf(raw string) string {
	_, rest, _ := strings.Cut(raw, " ")
	target, _, _ := strings.Cut(rest, " ")
	return target
}
