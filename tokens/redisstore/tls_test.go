package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest/redistest"
)

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", private)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cert, key := certificate(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	_, port, _ := net.SplitHostPort(address)
	for _, setting := range [][2]string{
		{"tls-cert-file", cert}, {"tls-key-file", key}, {"tls-auth-clients", "no"}, {"tls-port", port},
	} {
		if _, err := server.TryDo("CONFIG", "SET", setting[0], setting[1]); err != nil {
			t.Skipf("SKIPPED, NOT TESTED: this redis-server has no TLS: %v", err)
		}
	}
	secure := strings.Replace(server.URL(), "redis://", "rediss://", 1)
	secure = strings.Replace(secure, server.Addr(), address, 1)
	allWork(t, open(t, redisstore.Options{URL: secure + "?skip_verify=true", Timeout: time.Second}))
	// A server with a certificate of an unknown CA is refused. This is found in the handshake, for
	// which a busy machine needs its time.
	allUnavailable(t, open(t, redisstore.Options{URL: secure, Timeout: 5 * time.Second}), server.Password(), redisstore.KindTLS)
	// A server without TLS is refused as well.
	plain := strings.Replace(server.URL(), "redis://", "rediss://", 1)
	allUnavailable(t, open(t, redisstore.Options{URL: plain + "?skip_verify=true"}), server.Password())
}
