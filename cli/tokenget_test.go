package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tokenServer issues t1, t2 … and tells whoever calls another path what token it was shown.
type tokenServer struct {
	URL    string
	issued atomic.Int64
	away   atomic.Bool
	t      *testing.T
	home   string
	secret string
}

func newTokenServer(t *testing.T) *tokenServer {
	t.Helper()
	s := &tokenServer{t: t, home: t.TempDir()}
	s.secret = filepath.Join(s.home, "secret")
	if err := os.WriteFile(s.secret, []byte("the-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, secret, _ := r.BasicAuth()
		switch {
		case r.URL.Path != "/oauth2/token":
			fmt.Fprintf(w, "shown %s", r.Header.Get("Authorization"))
		case s.away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case secret != "the-secret":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":1000}`, s.issued.Add(1))
		}
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// run runs a command with the flags of a client.
func (s *tokenServer) run(command []string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	p := &Process{Environ: []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH")}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	all := append(command, append([]string{"-url", s.URL, "-client-id", "worker", "-secret-file", s.secret}, args...)...)
	code = p.Run(context.Background(), all)
	return code, strings.TrimSpace(out.String()), errs.String()
}

func (s *tokenServer) get(want string, args ...string) (stderr string) {
	s.t.Helper()
	code, got, stderr := s.run([]string{"token", "get"}, args...)
	if code != exitOK || got != want {
		s.t.Errorf("token get %q = %d, %q, %q; want %q", args, code, got, stderr, want)
	}
	return stderr
}

// kept returns the only file that keeps a token.
func (s *tokenServer) kept() string {
	s.t.Helper()
	found, _ := filepath.Glob(filepath.Join(s.home, ".cache", "snowgate", "token-*"))
	for _, path := range found {
		if !strings.HasSuffix(path, ".lock") {
			return path
		}
	}
	s.t.Fatalf("no file among %q", found)
	return ""
}

func TestTokenGetKeepsTheToken(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	s.get("t1")
	s.get("t1")
	if info, err := os.Stat(s.kept()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want mode 0600", info.Mode(), err)
	}
	path := s.kept()
	s.get("t2", "-scope", "other") // never that of other scopes
	s.get("t3", "-fresh")
	s.get("t4", "-cache", "none")
	s.get("t3")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	s.get("t5") // others may have changed or read the file
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the new file has mode %v", info.Mode())
	}
	s.away.Store(true)
	s.get("t5") // no request while the token is fresh
}

func TestTokenGetRenewsEarly(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	s.get("t1")
	path := s.kept()
	text, err := os.ReadFile(path)
	var kept keptToken
	if err != nil || json.Unmarshal(text, &kept) != nil {
		t.Fatal(err)
	}
	if early := kept.Expiry.Sub(kept.RenewAt); early < 195*time.Second || early > 205*time.Second {
		t.Errorf("renewed %v before the end of 1000 s, want 200 s", early)
	}
	kept.RenewAt = time.Now().Add(-time.Second)
	if err := kept.write(path); err != nil {
		t.Fatal(err)
	}
	s.away.Store(true)
	if stderr := s.get("t1"); !strings.Contains(stderr, "serves on until") {
		t.Errorf("with the gateway away it says %q", stderr)
	}
	s.away.Store(false)
	s.get("t2")
	kept.Expiry = time.Now().Add(-time.Second)
	if err := kept.write(path); err != nil {
		t.Fatal(err)
	}
	s.away.Store(true)
	if code, got, _ := s.run([]string{"token", "get"}); code != exitFailed || got != "" {
		t.Errorf("an ended token, the gateway away: %d, %q", code, got)
	}
}

func TestTokenGetOfManyFetchesOnce(t *testing.T) {
	t.Parallel()
	s := newTokenServer(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { s.get("t1") })
	}
	all.Wait()
	if n := s.issued.Load(); n != 1 {
		t.Errorf("%d tokens for 20 calls, want 1", n)
	}
}

func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl in the PATH")
	}
	s := newTokenServer(t)
	code, out, stderr := s.run([]string{"curl"}, "--", "-s", s.URL+"/orders")
	if code != exitOK || out != "shown Bearer t1" {
		t.Errorf("curl = %d, %q, %q", code, out, stderr)
	}
	if code, _, _ := s.run([]string{"curl"}, "--", "-s", "file:///does/not/exist"); code != 37 {
		t.Errorf("exit code %d, want curl's 37", code)
	}
	if code, _, stderr := s.run([]string{"curl"}); code != exitUsage || !strings.Contains(stderr, "arguments for curl") {
		t.Errorf("without arguments: %d, %q", code, stderr)
	}
}

func TestTokenGetNamesEveryFault(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	p := &Process{Stderr: &errs}
	if code := p.Run(context.Background(), []string{"token", "get", "-url", "gateway"}); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"-url", "-client-id", "-secret-file", "-cache"} {
		if !strings.Contains(errs.String(), want+":") && !strings.Contains(errs.String(), want+" \"\":") {
			t.Errorf("%s is not named in %q", want, errs.String())
		}
	}
}
