package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"snowgate/clients"
	"snowgate/integration/gatewaytest"
)

// TestOAuthDocumentation runs the configuration and the lines of docs/reference/oauth.md and
// compares every response with what the page says of it.
func TestOAuthDocumentation(t *testing.T) {
	t.Parallel()
	bash, _ := gatewaytest.Require(t, "bash", "bash"), gatewaytest.Require(t, "curl", "curl")
	gatewaytest.Require(t, "jq", "jq")
	page := readDoc(t, "reference/oauth.md")
	config := page.block(t, "yaml", "routes:")
	config, secrets := withSecrets(config)
	config = upstreamURL.ReplaceAllString(config, gatewaytest.NewRecorder(t, "").URL)
	g := gatewaytest.Start(t, gatewaytest.Options{Config: config, Env: []string{"SNOWGATE_STORE_TIMEOUT=10s"}})

	state := t.TempDir()
	lines := strings.Join(page.blocks("sh"), "\n")
	script := exec.CommandContext(t.Context(), bash, "-c", recordingCurl+lines)
	script.Env = append(os.Environ(), "state="+state, "gateway="+g.URL, "secret="+secrets[0], "api_secret="+secrets[1])
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	promised := promises.FindAllStringSubmatch(lines, -1)
	if calls := strings.Count(lines, "curl -s"); len(promised) < 30 || calls != len(promised) {
		t.Fatalf("%d lines call curl, %d of them say what comes", calls, len(promised))
	}
	for i, promise := range promised {
		header := readFile(t, filepath.Join(state, fmt.Sprintf("%03d.header", i)))
		response := header + readFile(t, filepath.Join(state, fmt.Sprintf("%03d.body", i)))
		if status := strings.Fields(header + " ? ?")[1]; status != promise[2] {
			t.Errorf("%s\nstatus %s, want %s", promise[1], status, promise[2])
		}
		for _, word := range strings.Fields(promise[3]) {
			if !strings.Contains(response, word) {
				t.Errorf("%s\nthe answer has no %s:\n%s", promise[1], word, response)
			}
		}
	}
}

// promises are the lines with the status and the words that follow them.
var promises = regexp.MustCompile(`(?m)^((?:token=\$\()?curl .*?)  # ([0-9]{3})(.*)$`)

// recordingCurl keeps the header and the body of each response.
const recordingCurl = `set -euo pipefail
curl() {
    local n
    n=$(printf '%s/%03d' "$state" "$(find "$state" -name '*.header' | wc -l)")
    command curl --noproxy '*' -m 20 -D "$n.header" "$@" | tee "$n.body"
}
`

// doc is a page of the documentation.
type doc string

func readDoc(t *testing.T, name string) doc {
	t.Helper()
	return doc(readFile(t, filepath.Join("..", "docs", name)))
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the blocks of code in a language.
func (d doc) blocks(language string) []string {
	var found []string
	for _, part := range strings.Split(string(d), "\n```"+language+"\n")[1:] {
		text, _, _ := strings.Cut(part, "\n```")
		found = append(found, text+"\n")
	}
	return found
}

// block returns the first block in a language that has a text in it.
func (d doc) block(t *testing.T, language, has string) string {
	t.Helper()
	for _, text := range d.blocks(language) {
		if strings.Contains(text, has) {
			return text
		}
	}
	t.Fatalf("the page has no block of %s with %q", language, has)
	return ""
}

// program returns the block that a comment gives a file name to.
func (d doc) program(t *testing.T, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(string(d), "<!-- file: "+name+" -->\n")
	if !ok {
		t.Fatalf("the page has no file %s", name)
	}
	_, rest, _ = strings.Cut(rest, "\n")
	text, _, _ := strings.Cut(rest, "\n```")
	return text + "\n"
}

// withSecrets puts the digests of new secrets in place of those in a
// configuration, and returns the secrets in the same order.
func withSecrets(config string) (text string, secrets []string) {
	text = digests.ReplaceAllStringFunc(config, func(string) string {
		secret, digest := clients.NewSecret()
		secrets = append(secrets, secret.Reveal())
		return fmt.Sprintf("sha256: %x", digest)
	})
	return text, secrets
}

var (
	digests     = regexp.MustCompile(`sha256: <64 hex digits>`)
	upstreamURL = regexp.MustCompile(`http://[a-z]+:8080`)
)
