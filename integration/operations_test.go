package integration_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// operationsPages are the pages of docs/how-to that are one session, in their order.
var operationsPages = []string{
	"administrator", "create-a-client", "rotate-a-secret", "disable-a-client", "revoke",
	"rotate-the-tag-key", "delete-a-client", "audit", "stop",
}

// operationsSession returns the blocks of operationsPages.
func operationsSession(t *testing.T) (blocks []operationsBlock) {
	t.Helper()
	for _, page := range operationsPages {
		blocks = append(blocks, operationsBlocks(string(readDoc(t, "how-to/"+page+".md")))...)
	}
	return blocks
}

// TestOperations runs every line of operationsPages against the real gateway
// and a real Redis, and compares what each block prints with what the page says.
func TestOperations(t *testing.T) {
	t.Parallel()
	bash := gatewaytest.Require(t, "bash", "bash")
	gatewaytest.Require(t, "curl", "curl")
	gatewaytest.Require(t, "jq", "jq")
	blocks := operationsSession(t)
	if shown := slices.DeleteFunc(slices.Clone(blocks), func(b operationsBlock) bool { return b.output == "" }); len(blocks) < 5 || len(shown) < 5 {
		t.Fatalf("the pages have %d blocks of shell, and %d of them say what they print", len(blocks), len(shown))
	}
	runOperations(t, bash, blocks)
}

// TestOperationsAfterABreakIn runs the pages as far as its recipe after a break-in, in the layout
// and with the worker numbers of each of the five systems.
func TestOperationsAfterABreakIn(t *testing.T) {
	t.Parallel()
	bash := gatewaytest.Require(t, "bash", "bash")
	gatewaytest.Require(t, "curl", "curl")
	gatewaytest.Require(t, "jq", "jq")
	blocks := operationsSession(t)
	last := slices.IndexFunc(blocks, func(b operationsBlock) bool { return strings.Contains(b.script, "host broken into") })
	if last < 0 || !strings.Contains(blocks[last].output, "\n401\n") {
		t.Fatal("docs/how-to/revoke.md has no recipe after a break-in that ends with a token refused")
	}
	const number = "export SNOWGATE_WORKER_ID=1\n"
	for system, env := range systemRows(t) {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			blocks, found := slices.Clone(blocks[:last+1]), false
			for i, b := range blocks {
				found = found || strings.Contains(b.script, number)
				blocks[i].script = strings.ReplaceAll(b.script, number, "export '"+strings.Join(env, "' '")+"'\n")
			}
			if !found {
				t.Fatalf("the pages have no line %q", number)
			}
			runOperations(t, bash, blocks)
		})
	}
}

// runOperations runs blocks against a Redis of its own, and compares.
func runOperations(t *testing.T, bash string, blocks []operationsBlock) {
	t.Helper()
	redis := redistest.Start(t)
	// The pages have the usual addresses, which may be taken here.
	dir := runPage(t, bash, blocks, strings.NewReplacer(
		"redis://127.0.0.1:6379", redis.URL(),
		"127.0.0.1:8080", closedAddress(t), "127.0.0.1:9090", closedAddress(t), "127.0.0.1:8081", closedAddress(t),
	))
	log := readFile(t, filepath.Join(dir, "snowgate.log"))
	if leak := gatewaytest.Leak(log); leak != "" {
		t.Errorf("the log holds a token or a secret: %.12s…", leak)
	}
	if strings.Contains(log, "DATA RACE") || strings.Contains(log, "\npanic: ") {
		t.Errorf("the gateway broke:\n%s", log)
	}
	if t.Failed() {
		t.Logf("log of the gateway:\n%s", log)
	}
}

// runPage runs the blocks of a page, one after the other in one shell, and compares what each
// prints with what the page says. It returns the directory in which they ran.
func runPage(t *testing.T, bash string, blocks []operationsBlock, addresses *strings.Replacer) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Symlink(gatewaytest.Binary(t), filepath.Join(dir, "snowgate")); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\nexport no_proxy='*'\n")
	for i, block := range blocks {
		script.WriteString(addresses.Replace(block.script))
		fmt.Fprintf(&script, "echo '=== block %d'\n", i)
	}
	stdout := runSession(t, bash, dir, script.String(),
		"SNOWGATE_LISTEN="+addresses.Replace("127.0.0.1:8080"), "SNOWGATE_ADMIN_LISTEN="+addresses.Replace("127.0.0.1:9090"))
	for i, block := range blocks {
		printed, rest, ended := strings.Cut(stdout, fmt.Sprintf("=== block %d\n", i))
		if !ended {
			t.Errorf("this block of the page fails:\n%s\nit prints\n%s", block.script, printed)
			break
		}
		stdout = rest
		if !block.expected().MatchString(squeeze(printed)) {
			t.Errorf("this block of the page\n%s\nprints\n%s\nand the page says\n%s", block.script, printed, block.output)
		}
	}
	return dir
}

// runSession runs a script in dir, and afterwards ends whatever it has started.
func runSession(t *testing.T, bash, dir, script string, env ...string) (stdout string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), bash, "-c", script)
	command.Dir = dir
	command.Env = append(env, "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "SNOWGATE_DRAIN=0s", "GORACE=atexit_sleep_ms=0")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Files and no pipes: what the script leaves behind would hold a pipe open, and Run would wait for it.
	logs := t.TempDir()
	out, err := os.Create(filepath.Join(logs, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stderr, err := os.Create(filepath.Join(logs, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	command.Stdout, command.Stderr = out, stderr
	err = command.Run()
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // the whole group, and nobody is left if all went well
	if err != nil {
		t.Errorf("the session ends with %v:\n%s", err, readFile(t, stderr.Name()))
	}
	return readFile(t, out.Name())
}

// operationsBlock is one script of the page, and what it says that it prints.
type operationsBlock struct{ script, output string }

// operationsBlocks returns the shell blocks of a page, each with the text block
// that follows it, if any.
func operationsBlocks(text string) []operationsBlock {
	var blocks []operationsBlock
	for _, match := range fences.FindAllStringSubmatch(text, -1) {
		switch kind, content := match[1], match[2]; {
		case kind == "sh":
			blocks = append(blocks, operationsBlock{script: content})
		case kind == "text" && len(blocks) > 0:
			blocks[len(blocks)-1].output = content
		}
	}
	return blocks
}

var fences = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

// expected matches what a block prints: runs of spaces and tabs are one space,
// and … is anything in a line.
func (b operationsBlock) expected() *regexp.Regexp {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(squeeze(b.output)), "…", ".*")
	return regexp.MustCompile("^" + pattern + "$")
}

// squeeze makes columns comparable.
func squeeze(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}

// closedAddress is host:port of a port on which nobody listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
