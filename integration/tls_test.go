package integration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// keyPair is the files of a certificate for 127.0.0.1.
type keyPair struct {
	cert, key string
}

func newKeyPair(t *testing.T) keyPair {
	dir := t.TempDir()
	return keyPair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

// write puts a new certificate with that serial number into the files.
func (p keyPair) write(t *testing.T, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "gateway"}, DNSNames: []string{"gateway"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, p.cert, "CERTIFICATE", der)
	writePEM(t, p.key, "PRIVATE KEY", secret)
}

func writePEM(t *testing.T, path, kind string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secureGateway starts a gateway that speaks TLS, with a protected service.
func secureGateway(t *testing.T, pair keyPair) (g *gatewaytest.Gateway, client gatewaytest.Credentials) {
	t.Helper()
	service := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen-Proto", r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(service.Close)
	client = gatewaytest.NewClient("a", "read")
	g = gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML + "routes:\n  - {name: svc, path: /svc, upstreams: [\"" + service.URL + "\"], scopes: [read]}\n",
		Env:    []string{"SNOWGATE_TLS_CERT=" + pair.cert, "SNOWGATE_TLS_KEY=" + pair.key},
	})
	g.URL = "https://" + g.Addr
	return g, client
}

// askIn sends a request over a new connection in one of the protocols.
func askIn(t *testing.T, protocols *http.Protocols, request *http.Request) *http.Response {
	t.Helper()
	transport := &http.Transport{
		Protocols:       protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	defer transport.CloseIdleConnections()
	response, err := gatewaytest.Inspect(transport).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response
}

func only(set func(*http.Protocols, bool)) *http.Protocols {
	protocols := new(http.Protocols)
	set(protocols, true)
	return protocols
}

func TestTLS(t *testing.T) {
	t.Parallel()
	pair := newKeyPair(t)
	pair.write(t, 1)
	g, client := secureGateway(t, pair)

	form := "grant_type=client_credentials&client_id=" + client.ID + "&client_secret=" + client.Secret
	for name, protocols := range map[string]*http.Protocols{
		"HTTP/1.1": only((*http.Protocols).SetHTTP1), "HTTP/2.0": only((*http.Protocols).SetHTTP2),
	} {
		request := g.Request(http.MethodPost, "/oauth2/token", strings.NewReader(form))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if got := askIn(t, protocols, request); got.StatusCode != http.StatusOK || got.Proto != name {
			t.Errorf("a token = %d in %s, want 200 in %s", got.StatusCode, got.Proto, name)
		}
		for path, want := range map[string]int{"/svc/x": 401, "/%73vc/x": 400, "/svc/../svc": 400, "//svc": 400, "/none": 404} {
			request := g.Request(http.MethodGet, "/", nil)
			request.URL.Opaque = "//" + g.Addr + path
			if got := askIn(t, protocols, request); got.StatusCode != want {
				t.Errorf("%s %s = %d, want %d", name, path, got.StatusCode, want)
			}
		}
	}
	if in := g.Metrics()["snowgate_tls_certificate_not_after_timestamp_seconds"] - float64(time.Now().Unix()); in < 3000 || in > 3600 {
		t.Errorf("the certificate ends in %v s by the metric, want an hour", in)
	}
}

// TestTLSCertificateIsRenewed: new files are in use without a restart, and bad
// ones leave the old certificate in force.
func TestTLSCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	pair := newKeyPair(t)
	pair.write(t, 1)
	g, _ := secureGateway(t, pair)
	serial := func() int64 {
		got := askIn(t, only((*http.Protocols).SetHTTP2), g.Request(http.MethodGet, "/livez", nil))
		return got.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Fatalf("the first certificate has number %d", got)
	}
	writePEM(t, pair.key, "PRIVATE KEY", []byte("nonsense"))
	g.WaitLog("the TLS certificate has changed and cannot be used; the one before stays in force")
	if got := serial(); got != 1 {
		t.Errorf("after a bad file the certificate has number %d, want the old one", got)
	}
	pair.write(t, 2)
	gatewaytest.Eventually(t, 10*time.Second, "show the new certificate", func() bool { return serial() == 2 })
}

func TestH2C(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients: []", Env: []string{"SNOWGATE_H2C=true"}})
	plain := gatewaytest.Start(t, gatewaytest.Options{Config: "clients: []"})
	unencrypted := only((*http.Protocols).SetUnencryptedHTTP2)
	if got := askIn(t, unencrypted, g.Request(http.MethodGet, "/livez", nil)); got.StatusCode != http.StatusOK || got.ProtoMajor != 2 {
		t.Errorf("GET /livez = %d in %s, want 200 in HTTP/2.0", got.StatusCode, got.Proto)
	}
	if got := askIn(t, only((*http.Protocols).SetHTTP1), g.Request(http.MethodGet, "/livez", nil)); got.StatusCode != http.StatusOK {
		t.Errorf("GET /livez in HTTP/1.1 = %d, want 200", got.StatusCode)
	}
	transport := &http.Transport{Protocols: unencrypted}
	if got, err := transport.RoundTrip(plain.Request(http.MethodGet, "/livez", nil)); err == nil {
		_ = got.Body.Close()
		t.Errorf("without H2C: GET /livez = %d in %s, want an error", got.StatusCode, got.Proto)
	}
}
