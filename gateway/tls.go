package gateway

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"snowgate/config"
	"snowgate/internal/deadline"
	"snowgate/internal/request/exchange"
)

// mostStreams is how many requests one HTTP/2 connection may have under way.
const mostStreams = 100

// certificate is the certificate of the public listener. It is loaded again when its files change,
// so that it is renewed without a restart. Files that cannot be used leave the previous certificate
// in force. It is safe for concurrent use.
type certificate struct {
	certFile, keyFile string
	log               zerolog.Logger
	changed           func(notAfter time.Time)
	current           atomic.Pointer[tls.Certificate]
	seen              files // at the last load; used by look only
}

// files holds the contents of the certificate file and the key file; nil for a file that is not
// there.
type files [2]os.FileInfo

func (f files) same(other files) bool {
	for i := range f {
		a, b := f[i], other[i]
		if a == nil || b == nil {
			if a != b {
				return false
			}
			continue
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// newCertificate reads the two files. changed is called with the end of its validity whenever
// another certificate is in force.
func newCertificate(cfg config.Config, log zerolog.Logger, changed func(time.Time)) (*certificate, error) {
	c := &certificate{certFile: cfg.TLSCert, keyFile: cfg.TLSKey, log: log, changed: changed}
	c.seen = c.find()
	err := c.load()
	return c, err
}

// load puts the content of the files in force.
func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current.Store(&pair)
	c.changed(pair.Leaf.NotAfter)
	c.log.Info().Strs("names", pair.Leaf.DNSNames).Time("not_after", pair.Leaf.NotAfter).Msg("the TLS certificate is in use")
	if time.Now().After(pair.Leaf.NotAfter) {
		c.log.Warn().Msg("the TLS certificate has expired: clients will refuse it")
	}
	return nil
}

// run looks at the files once a second until ctx ends.
func (c *certificate) run(ctx context.Context) {
	for deadline.Sleep(ctx, config.PollInterval) == nil {
		c.look()
	}
}

// look loads the files if they have changed. Certificate and key are two files
// that change one after the other: a pair that does not fit together is looked at
// again.
func (c *certificate) look() {
	now := c.find()
	if now.same(c.seen) {
		return
	}
	c.seen = now
	if err := c.load(); err != nil {
		c.log.Error().Err(err).Msg("the TLS certificate has changed and cannot be used; the one before stays in force")
	}
}

func (c *certificate) find() (found files) {
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			found[i] = info
		}
	}
	return found
}

// config is for a listener that speaks HTTP/2 and HTTP/1.1.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}

// strictTransport adds Strict-Transport-Security (RFC 6797) to every response that goes
// to its caller over TLS: over that of the gateway, or, if a trusted proxy says so,
// over the proxy's. An empty value adds nothing. It belongs right inside of
// [middleware.Observe], so that no response goes without.
func strictTransport(value config.HSTS) func(http.Handler) http.Handler {
	if value == "" {
		return func(next http.Handler) http.Handler { return next }
	}
	said := []string{string(value)}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isSecure(r) {
				w.Header()["Strict-Transport-Security"] = said
			}
			next.ServeHTTP(w, r)
		})
	}
}

// isSecure reports whether r came over TLS all the way to the gateway's side.
func isSecure(r *http.Request) bool {
	if proto := r.Header["X-Forwarded-Proto"]; len(proto) == 1 && exchange.From(r.Context()).PeerTrusted {
		return strings.EqualFold(proto[0], "https")
	}
	return r.TLS != nil
}

// speak makes server understand what the configuration says: HTTP/1.1 always,
// HTTP/2 over TLS, or without if that is wanted.
func (g *Gateway) speak(server *http.Server) {
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: mostStreams}
	server.Protocols.SetUnencryptedHTTP2(g.cfg.H2C)
	if g.certificate != nil {
		server.Protocols.SetHTTP2(true)
		server.TLSConfig = g.certificate.config()
	}
}
