package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// RedisTLS is how connections to Redis over TLS are secured beyond what the URL says. The zero value
// adds nothing. Its methods are safe for concurrent use.
type RedisTLS struct {
	// CA, Cert and Key are paths of PEM files, or PEM texts, or empty. CA replaces the CAs of the host.
	// Cert is the certificate that the gateway presents, Key the private key to it.
	CA, Cert string
	Key      Secret
}

// RedisTLS returns what the configuration says of TLS to Redis.
func (c *Config) RedisTLS() RedisTLS { return RedisTLS{c.RedisCA, c.RedisCert, c.RedisKey} }

// Apply changes c, the configuration of one or more connections. Files are read again for every
// connection, so that a certificate can be replaced without a restart; a file that cannot be used
// fails the handshake.
func (r RedisTLS) Apply(c *tls.Config) {
	if r.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := r.pair()
			return &pair, err
		}
	}
	if r.CA != "" && !c.InsecureSkipVerify { // skip_verify=true in the URL
		c.InsecureSkipVerify = true // verify does the same work, with the CA as it is then
		name := c.ServerName        // the state of a connection has no addresses
		c.VerifyConnection = func(state tls.ConnectionState) error { return r.verify(name, state.PeerCertificates) }
	}
}

// verify checks the certificate of the server of that name as crypto/tls does, against the CA.
func (r RedisTLS) verify(name string, chain []*x509.Certificate) error {
	roots, err := r.roots()
	if err != nil {
		return err
	}
	if name == "" || len(chain) == 0 {
		return errors.New("config: the certificate of Redis cannot be checked without a name")
	}
	between := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		between.AddCert(certificate)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

func (r RedisTLS) roots() (*x509.CertPool, error) {
	text, err := pemOf(r.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("there is no certificate in it, which begins with -----BEGIN CERTIFICATE-----")
	}
	return roots, nil
}

func (r RedisTLS) pair() (tls.Certificate, error) {
	certificate, err := pemOf(r.Cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := pemOf(r.Key.Reveal())
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%sREDIS_KEY: %w", Prefix, err)
	}
	return tls.X509KeyPair(certificate, key)
}

// pemOf returns a PEM text, or the content of the file that value names.
func pemOf(value string) ([]byte, error) {
	if strings.Contains(value, "-----BEGIN ") {
		return []byte(value), nil
	}
	text, err := os.ReadFile(value)
	if err == nil {
		return text, nil
	}
	failed := err
	if path, ok := errors.AsType[*os.PathError](err); ok {
		failed = path.Err // the path may be a key that somebody has put there
	}
	return nil, fmt.Errorf("the file cannot be read: %w", failed)
}

// checkRedisTLS checks one of the three, if it is set and the others allow it to have an effect.
func checkRedisTLS(value func(*Config) string, rule func(RedisTLS) string) func(*Config, time.Time) string {
	return func(c *Config, _ time.Time) string {
		switch {
		case value(c) == "":
			return ""
		case !strings.HasPrefix(c.RedisURL.Reveal(), "rediss"):
			return "has no use unless " + Prefix + "REDIS_URL begins with rediss://, rediss+sentinel:// or rediss+cluster://"
		}
		return rule(c.RedisTLS())
	}
}

// SkipsVerification reports whether the URL of Redis has its certificate believed whatever it is.
func (c *Config) SkipsVerification() bool {
	u, err := url.Parse(c.RedisURL.Reveal())
	if err != nil || !strings.HasPrefix(u.Scheme, "rediss") {
		return false
	}
	skips, err := strconv.ParseBool(u.Query().Get("skip_verify"))
	return err == nil && skips
}

func checkRedisCA(r RedisTLS) string {
	if _, err := r.roots(); err != nil {
		return "is not usable: " + err.Error()
	}
	return ""
}

func checkRedisCert(r RedisTLS) string {
	if !r.Key.IsSet() {
		return "needs " + Prefix + "REDIS_KEY, too"
	}
	if _, err := r.pair(); err != nil {
		return "is not usable with " + Prefix + "REDIS_KEY: " + err.Error()
	}
	return ""
}

func checkRedisKey(r RedisTLS) string {
	if r.Cert == "" {
		return "has no use without " + Prefix + "REDIS_CERT"
	}
	return "" // checkRedisCert has looked at both
}
