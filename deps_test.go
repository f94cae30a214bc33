package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed is the plan of the house: which of our packages each package may
// import. A package that is missing here fails the test, so that a new room is
// a decision. Test files may import anything.
var allowed = []struct {
	pkg     string
	imports []string
	why     string
}{
	{"internal/panics", nil, "recovers: knows nothing of what panicked"},
	{"internal/scope", nil, "a word of the RFC, used by everyone"},
	{"internal/base62", nil, "numbers as text: knows nothing of what they stand for"},
	{"internal/request/canonical", nil, "pure: a request target in, its one reading out"},
	{"internal/request/fields", nil, "names of header fields: pure, for those who pass them on and those who configure that"},
	{"idgen", []string{"internal/base62", "internal/deadline", "internal/panics"}, "a library of its own: nothing of the gateway, but for digits, waiting, and what recovers from panics"},
	{"internal/redisscript", nil, "adapter: scripts that work while Redis is full"},
	{"idgen/redislease", []string{"idgen", "internal/deadline", "internal/redisscript"}, "adapter: worker numbers leased in Redis"},
	{"tokens", []string{"internal/base62", "internal/deadline", "idgen", "internal/scope", "internal/panics"}, "the domain: it knows no HTTP and no Redis"},
	{"tokens/redisstore", []string{"tokens", "internal/deadline", "internal/cohort", "idgen", "internal/nonblock", "internal/scope", "internal/redisscript", "internal/panics"}, "adapter: the token store on Redis"},
	{"tokens/redisstore/embedded", []string{"internal/deadline", "internal/panics"}, "adapter: a Redis inside the process"},
	{"tokens/tokenstest", []string{"tokens", "idgen", "internal/scope"}, "the fake store and the contract suite"},
	{"tokens/tokenstest/redistest", nil, "starts real Redis servers for tests"},
	{"clients", []string{"internal/base62", "limit", "internal/scope"}, "who may ask: knows neither tokens nor HTTP"},
	{"clients/redisclients", []string{"clients", "limit", "internal/scope", "internal/redisscript"}, "adapter: the registry of clients on Redis"},
	{"limit", nil, "counts and compares times: knows neither clients nor HTTP"},
	{"limit/redislimit", []string{"limit", "internal/panics"}, "adapter: a client's rate over all gateways"},
	{"config", []string{"internal/request/canonical", "clients", "internal/request/fields", "idgen", "limit", "internal/scope"}, "reads text and checks it with the parsers of the domain"},
	{"internal/request/exchange", []string{"internal/request/canonical", "tokens"}, "the state of one request"},
	{"internal/problem", []string{"clients", "internal/request/exchange", "internal/scope", "limit", "tokens"}, "errors of the domain become answers here and nowhere else"},
	{"handlers", []string{"clients", "internal/request/exchange", "idgen", "limit", "internal/problem", "internal/scope", "tokens"}, "endpoints; never middleware or proxy"},
	{"handlers/admin", []string{"clients", "internal/request/exchange", "handlers", "idgen", "internal/problem", "tokens"}, "the admin API; asks for what it needs by interfaces of its own"},
	{"middleware", []string{"internal/request/canonical", "internal/request/exchange", "internal/request/fields", "internal/problem", "tokens", "internal/panics"}, "never handlers or proxy"},
	{"proxy", []string{"internal/request/canonical", "internal/cohort", "internal/request/exchange", "internal/request/fields", "limit", "internal/problem", "proxy/http1", "proxy/route", "proxy/transport", "proxy/upstream", "tokens", "internal/panics"}, "forwards one request; never handlers or middleware"},
	{"proxy/route", []string{"internal/request/canonical", "internal/request/fields", "limit", "proxy/http1", "proxy/transport", "tokens"}, "which requests go where, and under which policy: knows no connection"},
	{"proxy/upstream", []string{"internal/panics", "proxy/http1", "proxy/route", "proxy/transport"}, "what there is to send to, and how well it does: knows no request"},
	{"proxy/transport", []string{"internal/cohort", "proxy/http1"}, "makes one attempt: knows neither its caller nor other attempts"},
	{"proxy/http1", []string{"internal/nonblock", "internal/panics"}, "a client of HTTP/1.1: knows bytes, and nothing of who asks whom"},
	{"proxy/docker", []string{"proxy/route", "internal/panics"}, "finds routes; what labels mean is told to it"},
	{"proxy/docker/dockertest", nil, "a Docker API for tests"},
	{"proxy/docker/readonly", []string{"internal/problem", "proxy/docker"}, "a way to Docker that leads to lists only; what they must hold is said by who reads them"},
	{"internal/clientconn", []string{"internal/cohort", "internal/nonblock", "internal/panics"}, "connections as net/http uses them: knows bytes and deadlines"},
	{"internal/nonblock", nil, "system calls on sockets: knows bytes"},
	{"internal/deadline", nil, "contexts and timers: knows nothing of what is waited for"},
	{"internal/cohort", nil, "turns of the scheduler: knows nothing of what is done in them"},
	{"guard", nil, "for services of others: the standard library only, so that it can be published alone"},
	{"guard/guardtest", []string{"guard"}, "a stand-in for a gateway, for the tests of services: the standard library only, too"},
	{"source", nil, "for programs of others: the standard library only, so that it can be published alone"},
	{"internal/telemetry", nil, "is told, and knows nobody"},
	{"internal/logsink", []string{"internal/panics"}, "lines in, writes out: knows nothing of what they say"},
	{"internal/echo", nil, "an upstream like any other"},
	{"integration/cuttest", nil, "cuts what tests send: knows bytes"},
	{"gateway", []string{"clients", "clients/redisclients", "config", "handlers", "handlers/admin", "idgen", "idgen/redislease", "internal/clientconn", "internal/deadline", "internal/logsink", "internal/nonblock", "internal/panics", "internal/scope", "internal/telemetry", "limit", "limit/redislimit", "middleware", "internal/problem", "proxy", "proxy/docker", "proxy/route", "proxy/upstream", "internal/request/exchange", "tokens", "tokens/redisstore", "tokens/redisstore/embedded"}, "puts the parts of one gateway together and runs it: the only package that knows all of them"},
	{"cli", []string{"clients", "config", "gateway", "handlers", "handlers/admin", "idgen", "idgen/redislease", "internal/echo", "internal/panics", "internal/scope", "limit", "internal/problem", "proxy/docker/readonly", "source", "tokens", "tokens/redisstore"}, "commands: each knows what it needs, none how a gateway works inside"},
	{"integration/lineartest", nil, "counts work: knows functions"},
	{"integration/skipped", nil, "sums up what go test prints: knows text"},
	{"integration/gatewaytest", []string{"clients", "integration/cuttest"}, "runs the real binary; knows it from the outside"},
}

// redisAdapters may import go-redis; nothing else but main may, and what runs gateways for tests,
// which looks for secrets in all that they put there.
var redisAdapters = []string{"internal/redisscript", "clients/redisclients", "idgen/redislease", "limit/redislimit", "tokens/redisstore", "gateway", "integration/gatewaytest"}

func TestImportDirections(t *testing.T) {
	for pkg, imports := range packageImports(t) {
		if pkg == "." {
			continue // main wires everything
		}
		i := slices.IndexFunc(allowed, func(a struct {
			pkg     string
			imports []string
			why     string
		}) bool {
			return a.pkg == pkg
		})
		if i < 0 {
			t.Errorf("package %s is not in the plan: add it to the table with its reason", pkg)
			continue
		}
		for _, imported := range imports {
			if ours, ok := strings.CutPrefix(imported, "snowgate/"); ok && !slices.Contains(allowed[i].imports, ours) {
				t.Errorf("%s imports %s; it may import %q (%s)", pkg, ours, allowed[i].imports, allowed[i].why)
			}
			if imported == "snowgate" {
				t.Errorf("%s imports main", pkg)
			}
		}
	}
}

func TestOnlyAdaptersKnowRedis(t *testing.T) {
	for pkg, imports := range packageImports(t) {
		for _, imported := range imports {
			if strings.HasPrefix(imported, "github.com/redis/") && !slices.Contains(redisAdapters, pkg) {
				t.Errorf("%s imports %s; only %q may", pkg, imported, redisAdapters)
			}
		}
	}
}

// standardOnly are packages for the programs of others, which shall not get our dependencies with them.
var standardOnly = []string{"guard", "guard/guardtest", "source"}

func TestPackagesForOthersNeedTheStandardLibraryOnly(t *testing.T) {
	found := packageImports(t)
	for _, pkg := range standardOnly {
		if len(found[pkg]) == 0 {
			t.Errorf("no package %s", pkg)
		}
		for _, imported := range found[pkg] {
			own, ours := strings.CutPrefix(imported, "snowgate/")
			first, _, _ := strings.Cut(imported, "/")
			if ours && !slices.Contains(standardOnly, own) || strings.Contains(first, ".") {
				t.Errorf("%s imports %s, which is not of the standard library", pkg, imported)
			}
		}
	}
}

// packageImports returns what the non-test files of each package import. It
// leaves out folders with a go.mod of their own.
func packageImports(t *testing.T) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipForeign(name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(name))
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[pkg] = append(found[pkg], imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func skipForeign(dir string) error {
	if dir == "." {
		return nil
	}
	if modules, _ := filepath.Glob(filepath.Join(dir, "go.mod")); len(modules) > 0 {
		return filepath.SkipDir
	}
	if base := filepath.Base(dir); strings.HasPrefix(base, ".") || base == "testdata" {
		return filepath.SkipDir
	}
	return nil
}
