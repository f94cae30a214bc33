package integration_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"snowgate/integration/gatewaytest"
)

// h2spec is the conformance tester for HTTP/2 (RFC 9113, RFC 7541).
type h2spec struct {
	t       *testing.T
	program string
}

// target is a server that is tested.
type target struct {
	name, addr string
	tls        bool
}

// verdicts are the results of one run by the id of the case, such as
// "http2/5.1/12": whether it passed.
type verdicts map[string]bool

// run tests a server with the cases, all if none are named. A case that is skipped
// has no verdict.
func (h h2spec) run(at target, cases ...string) verdicts {
	h.t.Helper()
	host, port, err := net.SplitHostPort(at.addr)
	if err != nil {
		h.t.Error(err)
		return nil
	}
	report := filepath.Join(h.t.TempDir(), "report.xml")
	args := []string{"--host", host, "--port", port, "--path", "/public/x", "--timeout", "1", "--strict", "--junit-report", report}
	if at.tls {
		args = append(args, "--tls", "--insecure")
	}
	var out []byte
	for range 3 { // it ends without a report if it could not connect within its second
		out, _ = exec.CommandContext(h.t.Context(), h.program, append(args, cases...)...).CombinedOutput() // 1 says that a case failed
		if text, err := os.ReadFile(report); err == nil {
			return h.read(text, cases)
		}
	}
	h.t.Errorf("%s: h2spec leaves no report: %s", at.name, out)
	return nil
}

// read reads a report in the form of JUnit. It holds the cases in their order,
// without numbers, and only those that were run.
func (h h2spec) read(text []byte, cases []string) verdicts {
	var report struct {
		Suites []struct {
			Package string `xml:"package,attr"`
			Cases   []struct {
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		h.t.Error(err)
	}
	found := make(verdicts)
	for _, suite := range report.Suites {
		tried := triedOf(suite.Package, cases, len(suite.Cases))
		for i, one := range suite.Cases {
			if one.Skipped == nil {
				found[tried[i]] = one.Failure == nil && one.Error == nil
			}
		}
	}
	return found
}

// triedOf returns the ids of the cases of a section that were run, n in number: all
// of it or those among cases.
func triedOf(section string, cases []string, n int) []string {
	var ids []string
	for number := 1; len(ids) < n; number++ {
		id := fmt.Sprintf("%s/%d", section, number)
		if len(cases) == 0 || slices.Contains(cases, id) || number > 1000 {
			ids = append(ids, id)
		}
	}
	return ids
}

// failed returns the cases that did not pass.
func (v verdicts) failed() []string {
	var list []string
	for id, passed := range v {
		if !passed {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// both tests plain Go and the gateway at the same time.
func (h h2spec) both(plain, ours target, cases ...string) (reference, got verdicts) {
	var running sync.WaitGroup
	running.Go(func() { reference = h.run(plain, cases...) })
	running.Go(func() { got = h.run(ours, cases...) })
	running.Wait()
	return reference, got
}

// repeats is how often a case is repeated before it is believed that the gateway
// is worse. In some cases the response to what was legal and the error that the case
// waits for are under way at the same time: plain Go passes them at random.
const repeats = 10

// TestHTTP2Conformance: what a plain net/http server does right in the same run, the
// gateway does right as well, over TLS and without.
func TestHTTP2Conformance(t *testing.T) {
	tester := h2spec{t, h2specProgram(t)}
	var pairs sync.WaitGroup
	for name, pair := range h2specPairs(t) {
		pairs.Go(func() { tester.compare(name, pair[0], pair[1]) })
	}
	pairs.Wait()
}

// compare fails the test for each case that plain Go passes every time and the
// gateway never.
func (h h2spec) compare(name string, plain, ours target) {
	reference, got := h.both(plain, ours)
	if len(got) < 140 || len(got) != len(reference) {
		h.t.Errorf("%s: %d cases were tried with the gateway and %d with plain Go, want 140 or more and equally many", name, len(got), len(reference))
		return
	}
	h.t.Logf("%s: of %d cases plain Go fails %d %q, the gateway %d %q", name, len(got), len(reference.failed()), reference.failed(), len(got.failed()), got.failed())
	suspects := slices.DeleteFunc(got.failed(), func(id string) bool { return !reference[id] })
	for range repeats {
		if len(suspects) == 0 {
			return
		}
		reference, got = h.both(plain, ours, suspects...)
		suspects = slices.DeleteFunc(suspects, func(id string) bool { return got[id] || !reference[id] })
	}
	if len(suspects) > 0 {
		h.t.Errorf("%s: plain Go passes %q every time, the gateway never", name, suspects)
	}
}

func h2specProgram(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("h2spec"); err == nil {
		return path
	}
	if os.Getenv("SNOWGATE_TEST_REQUIRE") != "1" {
		t.Skip("SKIPPED, NOT TESTED: h2spec is not in PATH (.ci/tool h2spec builds it and says where it is)")
	}
	path, err := exec.CommandContext(t.Context(), filepath.Join("..", ".ci", "tool"), "h2spec").Output()
	if err != nil {
		t.Fatalf(".ci/tool h2spec: %v %s", err, stderrOf(err))
	}
	return strings.TrimSpace(string(path))
}

// h2specPairs starts a plain server and a gateway for each way to speak HTTP/2.
func h2specPairs(t *testing.T) map[string][2]target {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	service := httptest.NewServer(handler)
	t.Cleanup(service.Close)
	silent := log.New(io.Discard, "", 0)

	secure := httptest.NewUnstartedServer(handler)
	secure.EnableHTTP2, secure.Config.ErrorLog = true, silent
	secure.StartTLS()
	t.Cleanup(secure.Close)
	open := httptest.NewUnstartedServer(handler)
	open.Config.ErrorLog, open.Config.Protocols = silent, new(http.Protocols)
	open.Config.Protocols.SetHTTP1(true)
	open.Config.Protocols.SetUnencryptedHTTP2(true)
	open.Start()
	t.Cleanup(open.Close)

	certificate, key := writeTLS(t, secure)
	config := "clients: []\nroutes: [{name: public, path: /public, upstreams: [\"" + service.URL + "\"], public: true}]"
	start := func(env ...string) string {
		return gatewaytest.Start(t, gatewaytest.Options{Config: config, Env: env}).Addr
	}
	return map[string][2]target{
		"TLS": {{"plain Go", secure.Listener.Addr().String(), true}, {"the gateway", start("SNOWGATE_TLS_CERT="+certificate, "SNOWGATE_TLS_KEY="+key), true}},
		"H2C": {{"plain Go", open.Listener.Addr().String(), false}, {"the gateway", start("SNOWGATE_H2C=true"), false}},
	}
}
