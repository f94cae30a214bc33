package integration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// authority is a CA of one test.
type authority struct {
	t           *testing.T
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	path        string // of its PEM file
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	a.certificate = template
	a.path = a.write("ca.pem", a.sign(template, &a.key.PublicKey))
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PublicKey) *pem.Block {
	a.t.Helper()
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return &pem.Block{Type: "CERTIFICATE", Bytes: signed}
}

func (a *authority) write(name string, block *pem.Block) (path string) {
	a.t.Helper()
	path = filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue makes a pair for 127.0.0.1 and returns the paths of its files.
func (a *authority) issue(name string, end time.Time) (certificate, key string) {
	a.t.Helper()
	pair := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.MarshalECPrivateKey(pair)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", a.sign(template, &pair.PublicKey)), a.write(name+".key", &pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// startSecureRedis starts a Redis whose clients need a certificate of ca, and returns its rediss:// URL.
func startSecureRedis(t *testing.T, ca *authority, end time.Time) (server *redistest.Server, url string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	certificate, key := ca.issue("redis", end)
	server = redistest.Start(t, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", ca.path)
	return server, "rediss://:" + server.Password() + "@127.0.0.1:" + port
}

// TestRedisTLS: a Redis with a CA of its own, which wants certificates of its clients.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	ca, foreign, later := newAuthority(t), newAuthority(t), time.Now().Add(time.Hour/2)
	server, url := startSecureRedis(t, ca, later)
	_, expired := startSecureRedis(t, ca, time.Now().Add(-time.Minute))
	certificate, key := ca.issue("gateway", later)
	wrong, wrongKey := foreign.issue("stranger", later)
	file := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	good := []string{"SNOWGATE_REDIS_URL=" + url, "SNOWGATE_REDIS_CA=" + ca.path, "SNOWGATE_REDIS_CERT=" + certificate, "SNOWGATE_REDIS_KEY=" + key}
	for name, test := range map[string]struct {
		env  []string // behind good
		want string   // empty: no fault
	}{
		"good":           {nil, ""},
		"as texts":       {[]string{"SNOWGATE_REDIS_CA=" + file(ca.path), "SNOWGATE_REDIS_CERT=" + file(certificate), "SNOWGATE_REDIS_KEY=" + file(key)}, ""},
		"CA of the host": {[]string{"SNOWGATE_REDIS_CA="}, "SNOWGATE_REDIS_CA: the certificate of the Redis at "},
		"another CA":     {[]string{"SNOWGATE_REDIS_CA=" + foreign.path}, "SNOWGATE_REDIS_CA: the certificate of the Redis at "},
		"no certificate": {[]string{"SNOWGATE_REDIS_CERT=", "SNOWGATE_REDIS_KEY="}, "wants a certificate of its clients"},
		"foreign":        {[]string{"SNOWGATE_REDIS_CERT=" + wrong, "SNOWGATE_REDIS_KEY=" + wrongKey}, "does not accept this certificate"},
		"expired server": {[]string{"SNOWGATE_REDIS_URL=" + expired}, "has expired"},
		"another name":   {[]string{"SNOWGATE_REDIS_URL=" + strings.Replace(url, "127.0.0.1", "localhost", 1)}, "is not for that name"},
		"no TLS in it":   {[]string{"SNOWGATE_REDIS_URL=" + server.URL()}, "has no use unless SNOWGATE_REDIS_URL begins with rediss://"},
		"TLS to plain":   {[]string{"SNOWGATE_REDIS_URL=rediss" + strings.TrimPrefix(server.URL(), "redis")}, "speaks no TLS: write redis://"},
		"no key":         {[]string{"SNOWGATE_REDIS_KEY="}, "needs SNOWGATE_REDIS_KEY, too"},
		"another's key":  {[]string{"SNOWGATE_REDIS_KEY=" + wrongKey}, "is not usable with SNOWGATE_REDIS_KEY"},
		"no PEM":         {[]string{"SNOWGATE_REDIS_CA=" + wrongKey}, "is not usable: there is no certificate in it"},
		"not verified":   {[]string{"SNOWGATE_REDIS_URL=" + url + "?skip_verify=true"}, "has no use while the URL says skip_verify=true"},
		"no file":        {[]string{"SNOWGATE_REDIS_CA=/nowhere.pem"}, "the file cannot be read: no such file"},
	} {
		check := exec.Command(gatewaytest.Binary(t), "config", "-check", "-redis")
		check.Env = append(append(append([]string(nil), os.Environ()...), good...), test.env...)
		out, err := check.CombinedOutput()
		if test.want == "" && err != nil || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: %v, %s, want %q", name, err, out, test.want)
		}
		if strings.Contains(string(out), server.Password()) || strings.Contains(string(out), "PRIVATE") {
			t.Errorf("%s: the output holds a secret: %s", name, out)
		}
	}
}

// TestRedisCertificateIsReplaced: files of a new CA and a new pair are used without a restart.
func TestRedisCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	ca, foreign, later := newAuthority(t), newAuthority(t), time.Now().Add(time.Hour/2)
	server, url := startSecureRedis(t, ca, later)
	good, goodKey := ca.issue("gateway", later)
	bad, badKey := foreign.issue("stranger", later)
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	use := func(from, fromKey string) {
		for to, from := range map[string]string{certificate: from, key: fromKey} {
			text, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		server.Do("CLIENT", "KILL", "TYPE", "normal")
		server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	}
	use(good, goodKey)
	client := gatewaytest.NewClient("worker", "a")
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients:\n" + client.YAML, Env: []string{
		"SNOWGATE_REDIS_URL=" + url, "SNOWGATE_REDIS_CA=" + ca.path, "SNOWGATE_REDIS_CERT=" + certificate, "SNOWGATE_REDIS_KEY=" + key,
	}})
	g.Token(client)
	use(bad, badKey)
	g.WaitLog("Redis cannot be used: requests that need it are answered with 503")
	use(good, goodKey)
	gatewaytest.Eventually(t, 10*time.Second, "tokens again", func() bool {
		status, _ := g.Post("/oauth2/token", client, "grant_type", "client_credentials")
		return status == 200
	})
}
