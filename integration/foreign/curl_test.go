package foreign_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// stage is a service behind two gateways, one without TLS that takes HTTP/2 too, and
// one with it.
type stage struct {
	plain, secure string // base URLs, with the path of the route
	roots         string // file with the certificate to trust
}

// newStage starts both gateways in front of a service.
func newStage(t *testing.T, handler http.Handler) stage {
	t.Helper()
	service := httptest.NewServer(handler)
	t.Cleanup(service.Close)
	lender := httptest.NewTLSServer(nil) // of a certificate for 127.0.0.1
	lender.Close()
	dir := t.TempDir()
	s := stage{roots: filepath.Join(dir, "tls.crt")}
	key, err := x509.MarshalPKCS8PrivateKey(lender.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, s.roots, "CERTIFICATE", lender.Certificate().Raw)
	writePEM(t, filepath.Join(dir, "tls.key"), "PRIVATE KEY", key)
	config := "clients: []\nroutes: [{name: public, path: /svc, upstreams: [\"" + service.URL + "\"], public: true, strip_prefix: true, max_body: 0}, " +
		"{name: standard, path: /standard, upstreams: [\"" + service.URL + "\"], public: true, strip_prefix: true, max_body: 0, transport: standard}]"
	start := func(env ...string) string {
		return gatewaytest.Start(t, gatewaytest.Options{Config: config, Env: append(env, "SNOWGATE_LOG_LEVEL=info")}).Addr
	}
	s.plain = "http://" + start("SNOWGATE_H2C=true") + "/svc"
	s.secure = "https://" + start("SNOWGATE_TLS_CERT="+s.roots, "SNOWGATE_TLS_KEY="+filepath.Join(dir, "tls.key")) + "/svc"
	return s
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// curlWays are how curl speaks to a gateway.
var curlWays = []struct {
	name, version string // version is what curl says that it spoke
	secure        bool
	args          []string
}{
	{"HTTP/1.1", "1.1", false, []string{"--http1.1"}},
	{"HTTP/2", "2", false, []string{"--http2-prior-knowledge"}},
	{"HTTP/1.1 with TLS", "1.1", true, []string{"--http1.1"}},
	{"HTTP/2 with TLS", "2", true, []string{"--http2"}},
}

// base returns where the way leads to, with the arguments for it.
func (s stage) base(secure bool) (url string, args []string) {
	if secure {
		return s.secure, []string{"--cacert", s.roots}
	}
	return s.plain, nil
}

// serveFiles is a service with a file, an echo and a compressed response.
func serveFiles(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/file":
		http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(block))
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(compressed)
	case "/told":
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %d %x %v", r.Method, r.ContentLength, sha256.Sum256(body), err)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

var compressed = func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(bytes.Repeat(block[:1000], 100))
	_ = w.Close()
	return b.Bytes()
}()

// twice is the name of the case that asks for two things on one connection. With prior
// knowledge of HTTP/2, curl 7.88.1 fails at the second one, at any server.
const twice = "twice on a connection"

// curlCase is one call of curl: URL in args stands for the base, FILE for a file with
// the block, OUT for one with its first 1000 bytes.
type curlCase struct {
	name  string
	args  []string
	stdin []byte
	want  []byte // what it prints, without what -w adds
	said  string // what -w adds: status, version, new connections; %v stands for the version of the way
}

func curlCases() []curlCase {
	told := func(method string, length int) []byte {
		return fmt.Appendf(nil, "%s %d %x %v", method, length, sha256.Sum256(block), nil)
	}
	large := len(block)
	return []curlCase{
		{"GET", []string{"URL/file"}, nil, block, "200 %v 1"},
		{"POST", []string{"--data-binary", "@FILE", "-H", "Expect:", "URL/told"}, nil, told("POST", large), "200 %v 1"},
		{"PUT with Expect", []string{"-T", "FILE", "-H", "Expect: 100-continue", "--expect100-timeout", "60", "URL/told"}, nil, told("PUT", large), "200 %v 1"},
		{"PUT from stdin", []string{"-T", "-", "URL/told"}, block, told("PUT", -1), "200 %v 1"},
		{"PUT from stdin with Expect", []string{"-T", "-", "-H", "Expect: 100-continue", "--expect100-timeout", "60", "URL/told"}, block, told("PUT", -1), "200 %v 1"},
		{"range", []string{"-r", "100-4199", "URL/file"}, nil, block[100:4200], "206 %v 1"},
		{"last bytes", []string{"-r", "-100", "URL/file"}, nil, block[large-100:], "206 %v 1"},
		{"range beyond the end", []string{"-r", "99999999-", "-o", "/dev/null", "URL/file"}, nil, nil, "416 %v 1"},
		{"resume", []string{"-C", "1000", "URL/file"}, nil, block[1000:], "206 %v 1"},
		{"not modified", []string{"-z", "Wed, 01 Jan 2020 00:00:00 GMT", "URL/file"}, nil, nil, "304 %v 1"},
		{"compressed", []string{"--compressed", "URL/gzip"}, nil, bytes.Repeat(block[:1000], 100), "200 %v 1"},
		{"compressed, as it is", []string{"URL/gzip"}, nil, compressed, "200 %v 1"},
		{twice, []string{"URL/file", "URL/gzip"}, nil, nil, ""},
		{"DELETE", []string{"-X", "DELETE", "-o", "/dev/null", "URL/told"}, nil, nil, "200 %v 1"},
		{"no such thing", []string{"URL/none"}, nil, nil, "404 %v 1"},
	}
}

// TestCurl goes through what people do with curl, in every version of HTTP.
func TestCurl(t *testing.T) {
	t.Parallel()
	program := gatewaytest.Require(t, "curl", "curl")
	s := newStage(t, http.HandlerFunc(serveFiles))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, way := range curlWays {
		url, args := s.base(way.secure)
		for _, test := range curlCases() {
			if test.name == twice && way.name == "HTTP/2" {
				continue
			}
			t.Run(way.name+"/"+test.name, func(t *testing.T) {
				use := append([]string{"--noproxy", "*", "-sS", "-m", "30", "-w", "%{stderr}%{http_code} %{http_version} %{num_connects};"}, way.args...)
				for _, arg := range append(args, test.args...) {
					use = append(use, strings.NewReplacer("URL", url, "FILE", file).Replace(arg))
				}
				out, said := runCurl(t, program, test.stdin, use...)
				want, wantSaid := test.want, strings.ReplaceAll(test.said, "%v", way.version)+";"
				if test.said == "" {
					want = append(bytes.Clone(block), compressed...)
					wantSaid = strings.ReplaceAll("200 %v 1;200 %v 0;", "%v", way.version)
				}
				if !bytes.Equal(out, want) || said != wantSaid {
					t.Errorf("curl %q prints %d bytes (%.100q) and says %q, want %d bytes (%.100q) and %q", use, len(out), out, said, len(want), want, wantSaid)
				}
			})
		}
	}
	testCurlHeaders(t, program, s)
}

// testCurlHeaders has what curl shows of a header: HEAD, and HTTP/1.0.
func testCurlHeaders(t *testing.T, program string, s stage) {
	t.Helper()
	for _, way := range curlWays {
		url, args := s.base(way.secure)
		out, _ := runCurl(t, program, nil, append(append(way.args, args...), "--noproxy", "*", "-sS", "-m", "30", "-I", url+"/file")...)
		if got := strings.ToLower(string(out)); !strings.Contains(got, fmt.Sprintf("content-length: %d\r\n", len(block))) {
			t.Errorf("%s: HEAD = %q, want the length %d", way.name, got, len(block))
		}
	}
	out, _ := runCurl(t, program, nil, "--noproxy", "*", "-sS", "-m", "30", "--http1.0", "-i", "--raw", s.plain+"/file")
	header, body, _ := bytes.Cut(out, []byte("\r\n\r\n"))
	if !bytes.HasPrefix(header, []byte("HTTP/1.0 200 ")) || bytes.Contains(bytes.ToLower(header), []byte("transfer-encoding")) || !bytes.Equal(body, block) {
		t.Errorf("HTTP/1.0: %q with %d bytes, want 1.0 without chunks, and %d bytes", header, len(body), len(block))
	}
}

// runCurl returns what curl prints on both streams.
func runCurl(t *testing.T, program string, stdin []byte, args ...string) (out []byte, said string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	if stdin != nil {
		command.Stdin = io.MultiReader(bytes.NewReader(stdin)) // a pipe, whose length is not known
	}
	var told bytes.Buffer
	command.Stderr = &told
	out, err := command.Output()
	if err != nil {
		t.Errorf("curl %q: %v, %s", args, err, told.String())
	}
	return out, told.String()
}
