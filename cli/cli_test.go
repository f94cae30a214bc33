package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/config"
	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

// call runs a command line in this process and returns what it did.
func call(t *testing.T, stdin string, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &Process{Environ: environ, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs}
	code = p.Run(t.Context(), args)
	return code, out.String(), errs.String()
}

func TestWrongCommandLines(t *testing.T) {
	tests := []struct {
		args []string
		want []string // all of them are in the complaint
	}{
		{[]string{"nonsense"}, []string{`unknown command "nonsense"`, "Usage:"}},
		{[]string{"cleint", "list"}, []string{`unknown command "cleint"; did you mean client?`}},
		{[]string{"client"}, []string{`"client" needs one of: new, list, show, create, rotate, disable, enable, delete`}},
		{[]string{"client", "erase"}, []string{`unknown command "client erase"`, "one of: new, list"}},
		{[]string{"client", "lists"}, []string{`unknown command "client lists"; did you mean list?`}},
		{[]string{"key"}, []string{`"key" needs one of: rotate, list`}},
		{[]string{"version", "-x"}, []string{"flag provided but not defined: -x", `"snowgate version -h"`}},
		{[]string{"echo", "-lisen=:1"}, []string{"-lisen; did you mean -listen?", `"snowgate echo -h" tells the flags`}},
		{[]string{"client", "new", "-id", "a", "-scope", "a,b"}, []string{`-scope "a,b": scopes are separated by spaces`, `-scope "a b"`}},
		{[]string{"client", "create", "a", "-scope", "a, b"}, []string{`-scope "a, b": scopes are separated by spaces`, `-scope "a b"`}},
		{[]string{"version", "extra"}, []string{`unexpected argument "extra"`}},
		// Every fault is told, not only the first.
		{[]string{"echo", "-wrong", "-bad=1", "extra"}, []string{"-wrong", "-bad", `"extra"`}},
		{[]string{"client", "new", "-id", "a b", "-scope", "x  y", "-audience", "nowhere", "-ttl", "-1s"},
			[]string{"-id", "-scope", "scope", "-audience", "-ttl"}},
		{[]string{"client", "new"}, []string{"-id"}},
		{[]string{"ids", "free"}, []string{"-worker", "-unused", "SNOWGATE_REDIS_URL"}},
		{[]string{"ids", "free", "-worker", "1", "-unused", "-for", "-1h"}, []string{"one of -worker and -unused", "-for"}},
		{[]string{"config", "-check", "-nope"}, []string{"-nope"}},
		{[]string{"config", "-check", "none.yaml"}, []string{"SNOWGATE_CONFIG", `"none.yaml" cannot be read`}},
		{[]string{"config", "-check", "none.yaml", "-redis", "more"}, []string{`unexpected argument "more"`}},
		{[]string{"config", "none.yaml"}, []string{"-check none.yaml"}},
	}
	for _, tt := range tests {
		code, stdout, stderr := call(t, "", nil, tt.args...)
		if code != exitUsage || stdout != "" {
			t.Errorf("snowgate %q: exit code %d, output %q, want %d and none", tt.args, code, stdout, exitUsage)
		}
		for _, want := range tt.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("snowgate %q complains %q, want %q in it", tt.args, stderr, want)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	code, stdout, _ := call(t, "", nil, "help")
	if code != exitOK {
		t.Errorf("help: exit code %d", code)
	}
	for _, c := range commands() {
		if !strings.Contains(stdout, "snowgate "+c.name) {
			t.Errorf("help does not name %q", c.name)
		}
		if code, stdout, _ := call(t, "", nil, append(splitWords(c.name), "-h")...); code != exitOK || !strings.Contains(stdout, "Usage") {
			t.Errorf("%s -h: exit code %d, output %q", c.name, code, stdout)
		}
	}
}

func TestHelpOfAGroup(t *testing.T) {
	code, stdout, _ := call(t, "", nil, "client", "-h")
	if code != exitOK || !strings.Contains(stdout, "snowgate client rotate ID") || strings.Contains(stdout, "snowgate key") {
		t.Errorf("client -h: exit code %d, output %q", code, stdout)
	}
}

func TestConfigCheckOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my.yaml")
	if err := os.WriteFile(file, []byte("clients: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The file is the one to check, whatever the variable names.
	environ := []string{"SNOWGATE_CONFIG=/nowhere", "SNOWGATE_WORKER_ID=1"}
	if code, stdout, stderr := call(t, "", environ, "config", "-check", file); code != exitOK || stdout != "ok: the variables, "+file+"\n" {
		t.Errorf("config -check FILE: %d %q %q", code, stdout, stderr)
	}
	if code, stdout, stderr := call(t, "", environ[1:], "config", "-check"); code != exitOK || stdout != "ok: the variables; SNOWGATE_CONFIG is not set\n" {
		t.Errorf("config -check: %d %q %q", code, stdout, stderr)
	}
}

// Variables configure the gateway, not flags, and its help lists them.
func TestHelpOfServe(t *testing.T) {
	code, stdout, _ := call(t, "", nil, "serve", "-h")
	for _, want := range []string{"has no flags", "SNOWGATE_LISTEN ", "(default :8080)", "SNOWGATE_REDIS_URL ", "_FILE"} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("serve -h: exit code %d, want %q in it:\n%s", code, want, stdout)
		}
	}
}

func TestVersionAsAFlag(t *testing.T) {
	for _, flag := range []string{"--version", "-version", "-v"} {
		if code, stdout, stderr := call(t, "", nil, flag); code != exitOK || !strings.HasPrefix(stdout, "snowgate ") {
			t.Errorf("snowgate %s: %d %q %q", flag, code, stdout, stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := call(t, "", nil, "version")
	if code != exitOK || !regexp.MustCompile(`^snowgate \S+ \(commit \S+, go1\.\S+\)\n$`).MatchString(stdout) {
		t.Errorf("version: exit code %d, output %q", code, stdout)
	}
}

func TestClientNewMakesWhatTheGatewayReads(t *testing.T) {
	code, stdout, stderr := call(t, "", nil, "client", "new", "-id", "orders-worker", "-scope", "b a",
		"-audience", "https://orders.example", "-ttl", "30m", "-expires", "720h", "-introspect")
	if code != exitOK {
		t.Fatalf("client new: exit code %d: %s", code, stderr)
	}
	secret := regexp.MustCompile(`sgs_\w+`).FindString(stdout)
	if err := clients.CheckSecret(secret); err != nil {
		t.Errorf("the secret: %v", err)
	}
	_, text, found := strings.Cut(stdout, "digest:\n\n")
	if !found {
		t.Fatalf("client new prints no YAML: %q", stdout)
	}
	path := filepath.Join(t.TempDir(), "snowgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load([]string{"SNOWGATE_CONFIG=" + path})
	if err != nil {
		t.Fatalf("its YAML is not accepted: %v\n%s", err, text)
	}
	got := cfg.File.Clients[0]
	if got.ID != "orders-worker" || got.Scopes != "b a" || got.Secrets[0].SHA256 != clients.Digest(secret) || got.Introspect != clients.IntrospectAny ||
		got.Audiences[0] != "https://orders.example" || got.TokenTTL.String() != "30m0s" || got.Secrets[0].ExpiresAt.IsZero() {
		t.Errorf("read back: %+v", got)
	}
}

func TestClientNewQuiet(t *testing.T) {
	code, stdout, stderr := call(t, "", nil, "client", "new", "-quiet", "-id", "x")
	if code != exitOK || clients.CheckSecret(strings.TrimSuffix(stdout, "\n")) != nil || !strings.HasPrefix(stderr, "clients:\n  - id: x\n") {
		t.Errorf("client new -quiet: exit code %d, output %q, %q", code, stdout, stderr)
	}
	if strings.Contains(stderr, strings.TrimSpace(stdout)) {
		t.Error("the YAML holds the secret")
	}
}

func TestTokenInspect(t *testing.T) {
	const example = "6979004485312020512" // id-systems C, with the Unix epoch
	tests := []struct {
		name    string
		environ []string
		arg     string
		stdin   string
		want    []string
	}{
		{"an id of another layout", []string{"SNOWGATE_EPOCH=1970-01-01T00:00:00Z", "SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12,rollback:3"},
			example, "", []string{"2022-09-23T09:12:12.931Z", "worker        67", "datacenter    2", "worker in it  3", "sequence      4", "rollback      0"}},
		{"an id from standard input", nil, "", "00000000000\n", []string{"issued at  2026-01-01T00:00:00.000Z", "worker     0"}},
		// A broken variable that has no part in decoding does not matter.
		{"beside a broken configuration", []string{"SNOWGATE_DRAIN=never", "SNOWGATE_NOPE=1"}, "00000000000", "", []string{"2026-01-01"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"token", "inspect"}
			if tt.arg != "" {
				args = append(args, tt.arg)
			}
			code, stdout, stderr := call(t, tt.stdin, tt.environ, args...)
			if code != exitOK {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("output %q, want %q in it", stdout, want)
				}
			}
		})
	}
}

func TestTokenInspectTag(t *testing.T) {
	const keyText = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	key, err := tokens.ParseKey(keyText)
	if err != nil {
		t.Fatal(err)
	}
	text := mintWith(t, key)
	forged := text[:len(text)-1] + string(rune('0'+(text[len(text)-1]+1)%10))
	tests := []struct {
		text    string
		environ []string
		want    string
	}{
		{text, []string{"SNOWGATE_TOKEN_KEY=" + keyText}, "verified"},
		{text, nil, "unverified"},
		{forged, []string{"SNOWGATE_TOKEN_KEY=" + keyText}, "forged"},
	}
	for _, tt := range tests {
		code, stdout, stderr := call(t, tt.text+"\n", tt.environ, "token", "inspect", "-json")
		var got inspection
		if err := json.Unmarshal([]byte(stdout), &got); code != exitOK || err != nil {
			t.Fatalf("exit code %d, output %q, %v: %s", code, stdout, err, stderr)
		}
		if got.Tag != tt.want {
			t.Errorf("tag = %q, want %q", got.Tag, tt.want)
		}
		if strings.Contains(stdout+stderr, text[16:59]) {
			t.Error("the secret is printed")
		}
	}
}

func TestTokenInspectRefusesWithoutRepeating(t *testing.T) {
	// A token with one character missing is still nearly a token.
	const damaged = "sgt_0123456789A_0123456789012345678901234567890123456789012"
	code, stdout, stderr := call(t, damaged, nil, "token", "inspect")
	if code != exitFailed || strings.Contains(stdout+stderr, "0123456789012345") {
		t.Errorf("exit code %d, output %q, %q", code, stdout, stderr)
	}
}

// mintWith issues a token under key.
func mintWith(t *testing.T, key tokens.Key) string {
	t.Helper()
	service := tokens.NewService(tokens.Config{
		Store:    tokenstest.NewStore(time.Now),
		IDs:      anID(42),
		Keys:     tokens.FixedKeyring(key),
		MintTime: func(idgen.ID) time.Time { return time.Now() },
	})
	bearer, _, err := service.Issue(t.Context(), tokens.Claims{Client: "c", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return bearer.Reveal()
}

// anID is a generator of one id.
type anID idgen.ID

func (id anID) Next(context.Context) (idgen.ID, error) { return idgen.ID(id), nil }

// TestCommandsReadFilesOfVariables: commands honour NAME_FILE as the gateway does, and name a file
// that cannot be read.
func TestCommandsReadFilesOfVariables(t *testing.T) {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || r.URL.RawQuery != "" && r.URL.RawQuery != "for=issue" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer gateway.Close()
	file := filepath.Join(t.TempDir(), "listen")
	if err := os.WriteFile(file, []byte(gateway.Listener.Addr().String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args    []string
		environ string
		code    int
		stderr  string
	}{
		{[]string{"health"}, "SNOWGATE_LISTEN_FILE=" + file, exitOK, ""},
		{[]string{"health", "-for", "issue"}, "SNOWGATE_LISTEN_FILE=" + file, exitOK, ""},
		{[]string{"health", "-for", "issue", "-url", gateway.URL}, "", exitUsage, "-for"},
		{[]string{"health"}, "SNOWGATE_LISTEN_FILE=/nowhere", exitUsage, "SNOWGATE_LISTEN"},
		{[]string{"client", "list"}, "SNOWGATE_ADMIN_LISTEN_FILE=/nowhere", exitUsage, "SNOWGATE_ADMIN_LISTEN"},
		{[]string{"client", "list"}, "SNOWGATE_ISSUER_FILE=/nowhere\nSNOWGATE_TLS_CERT=x", exitUsage, "SNOWGATE_ISSUER"},
		{[]string{"revoke", "-client", "a"}, "SNOWGATE_TLS_CERT_FILE=/nowhere", exitUsage, "SNOWGATE_TLS_CERT"},
		{[]string{"key", "list"}, "SNOWGATE_ADMIN_CLIENT_SECRET_FILE=/nowhere", exitUsage, "SNOWGATE_ADMIN_CLIENT_SECRET"},
	} {
		var stderr strings.Builder
		p := &Process{Environ: strings.Split(test.environ, "\n"), Stdout: io.Discard, Stderr: &stderr}
		if code := p.Run(t.Context(), test.args); code != test.code || !strings.Contains(stderr.String(), test.stderr) {
			t.Errorf("%v with %s = %d %q, want %d naming %s", test.args, test.environ, code, stderr.String(), test.code, test.stderr)
		}
	}
}
