package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"embed"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed conf
var configurations embed.FS

// site is what all contestants share: the upstream, the programs, a certificate
// and a folder for their files.
type site struct {
	dir       string
	upstream  string // host:port
	gateway   string // path of the binary under test
	bare      string // path of the bare reverse proxy
	floor     string // path of the program of that name
	cert, key string // PEM files
	running   []*process
	free      []*process // each a Redis that no gateway uses
}

// openSite builds what is to be built and starts the upstream.
func openSite(ctx context.Context, gateway string) (*site, error) {
	dir, err := os.MkdirTemp("", "snowgate-bench-")
	if err != nil {
		return nil, err
	}
	// nginx's workers are somebody else.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nothing in it is secret for longer than a run
		return nil, err
	}
	s := &site{dir: dir, gateway: gateway, bare: filepath.Join(dir, "bare"), floor: filepath.Join(dir, "floor"),
		cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *site) open(ctx context.Context) error {
	if s.gateway == "" {
		s.gateway = filepath.Join(s.dir, "snowgate")
		if err := goBuild(ctx, "..", s.gateway, ".", "-pgo="+gatewayProfile); err != nil {
			return err
		}
	}
	if err := goBuild(ctx, ".", s.bare, "./bare"); err != nil {
		return err
	}
	if err := goBuild(ctx, ".", s.floor, "./floor"); err != nil {
		return err
	}
	if err := writeCertificate(s.cert, s.key); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.upstream = address(port)
	path, err := s.configure("upstream.conf", map[string]string{"PORT": strconv.Itoa(port)})
	if err != nil {
		return err
	}
	p, err := start(program{path: "nginx", args: []string{"-c", path}, core: loadCore})
	if err != nil {
		return err
	}
	s.running = append(s.running, p)
	return p.listening(ctx, s.upstream)
}

// close stops what still runs and removes the folder.
func (s *site) close() {
	for _, p := range s.running {
		p.kill()
	}
	_ = os.RemoveAll(s.dir)
}

// gatewayProfile is by what the gateway is optimised, in its source tree.
const gatewayProfile = "deploy/default.pgo"

// goBuild builds a program as the image does, the gateway with its profile among the flags.
func goBuild(ctx context.Context, dir, output, pkg string, flags ...string) error {
	args := slices.Concat([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", output}, flags, []string{pkg})
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, text)
	}
	return nil
}

var placeholder = regexp.MustCompile(`@[A-Z_]+@`)

// configure writes one of the configurations, with values for its placeholders,
// and returns where it is.
func (s *site) configure(name string, values map[string]string) (path string, err error) {
	text, err := s.fill(name, values)
	if err != nil {
		return "", err
	}
	return s.write(name, text)
}

// fill returns one of the configurations with values for its placeholders.
func (s *site) fill(name string, values map[string]string) (string, error) {
	text, err := configurations.ReadFile("conf/" + name)
	if err != nil {
		return "", err
	}
	pairs := []string{"@DIR@", s.dir, "@UPSTREAM@", s.upstream, "@CERT@", s.cert, "@KEY@", s.key}
	for key, value := range values {
		pairs = append(pairs, "@"+key+"@", value)
	}
	filled := strings.NewReplacer(pairs...).Replace(string(text))
	if missing := placeholder.FindString(filled); missing != "" {
		return "", fmt.Errorf("%s: nothing is given for %s", name, missing)
	}
	return filled, nil
}

// write puts text into a file of its own in the folder.
func (s *site) write(name, text string) (path string, err error) {
	file, err := os.CreateTemp(s.dir, "*-"+name)
	if err != nil {
		return "", err
	}
	if _, err := file.WriteString(text); err != nil {
		return "", err
	}
	return file.Name(), file.Close()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// writeCertificate makes a self-signed certificate of the kind that public
// authorities issue today: ECDSA on P-256.
func writeCertificate(certPath, keyPath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "localhost"},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(certPath, "CERTIFICATE", cert); err != nil {
		return err
	}
	return writePEM(keyPath, "PRIVATE KEY", private)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
