package integration_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"snowgate/integration/gatewaytest"
)

// The tests of this file read the documents as files. Those that run what stands in them are
// TestOperations, TestFirstService, TestOAuthDocumentation and TestServicesBehind.

// repository is the root of the repository, from here.
const repository = ".."

// repositoryFiles returns the files with one of the suffixes, by their path from the root.
func repositoryFiles(t *testing.T, suffixes ...string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(repository, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "bin"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains(suffixes, filepath.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(name)
		files[strings.TrimPrefix(filepath.ToSlash(name), repository+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var (
	fencedBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inlineCode   = regexp.MustCompile("`[^`\n]*`")
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
)

// prose returns a page without its blocks of code.
func prose(page string) string { return fencedBlock.ReplaceAllString(page, "") }

// linksOf returns the relative links of a page.
func linksOf(page string) []string {
	var links []string
	for _, match := range markdownLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(prose(page), "``"), -1) {
		if !strings.Contains(match[1], "://") && !strings.HasPrefix(match[1], "mailto:") {
			links = append(links, match[1])
		}
	}
	return links
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page.
func anchorsOf(page string) map[string]bool {
	anchors := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(prose(page), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, markdownLink.ReplaceAllString(match[1], "]"))
		unique := anchor
		for n := 1; anchors[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", anchor, n)
		}
		anchors[unique] = true
	}
	return anchors
}

// TestLinks follows every relative link of every page, to the file and to the heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := repositoryFiles(t, ".md")
	checked := 0
	for name, page := range pages {
		for _, link := range linksOf(page) {
			checked++
			target, anchor, _ := strings.Cut(link, "#")
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, link)
			} else if text, ok := pages[file]; anchor != "" && (!ok || !anchorsOf(text)[anchor]) {
				t.Errorf("%s: the link %s leads to a page without this heading", name, link)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d links were checked", checked)
	}
}

// TestPagesAreReachable follows the links from docs/README.md and wants to meet every page below docs.
func TestPagesAreReachable(t *testing.T) {
	t.Parallel()
	pages := repositoryFiles(t, ".md")
	const index = "docs/README.md"
	met, next := map[string]bool{index: true}, []string{index}
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		for _, link := range linksOf(pages[name]) {
			target, _, _ := strings.Cut(link, "#")
			target = path.Join(path.Dir(name), target)
			if _, ok := pages[target]; ok && !met[target] {
				met[target] = true
				next = append(next, target)
			}
		}
	}
	for name := range pages {
		if strings.HasPrefix(name, "docs/") && !met[name] {
			t.Errorf("no link leads from %s to %s", index, name)
		}
	}
}

// TestReferencePagesLookAlike: each begins with what it is about, and ends with where to read on.
func TestReferencePagesLookAlike(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile("(?s)\\A# [^\n]+\n\n[A-Z`][^\n]+\n.*\n## See also\n\n(- \\[[^\n]+\\)\n)+\\z")
	found := 0
	for name, page := range repositoryFiles(t, ".md") {
		if strings.HasPrefix(name, "docs/reference/") {
			found++
			if !shape.MatchString(page) {
				t.Errorf("%s needs a heading, a paragraph that says what it is about, and at the end a list under ## See also", name)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d pages of reference were found", found)
	}
}

var mentionedPage = regexp.MustCompile(`\bdocs/[A-Za-z0-9_/.-]*[A-Za-z0-9_]`)

// TestMentionedPagesExist looks up each path below docs that code, scripts and configuration mention.
func TestMentionedPagesExist(t *testing.T) {
	t.Parallel()
	mentioned := 0
	for name, text := range repositoryFiles(t, ".go", ".yml", ".yaml", ".sh", ".pml", ".lua", "") {
		for _, page := range mentionedPage.FindAllString(text, -1) {
			mentioned++
			if _, err := os.Stat(filepath.Join(repository, page)); err != nil {
				t.Errorf("%s mentions %s, which does not exist", name, page)
			}
		}
	}
	if mentioned < 20 {
		t.Errorf("%d pages are mentioned", mentioned)
	}
}

// longestLine is what a line of prose may have in characters, so that a page can be read as text.
const longestLine = 130

// TestLinesAreReadable wants prose to be wrapped. A row of a table, a heading and a line with a long link cannot be.
func TestLinesAreReadable(t *testing.T) {
	t.Parallel()
	for name, page := range repositoryFiles(t, ".md") {
		if !strings.HasPrefix(name, "docs/") && name != "README.md" && name != "CONTRIBUTING.md" {
			continue
		}
		for line := range strings.Lines(prose(page)) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.Contains(line, "](") {
				continue
			}
			if length := utf8.RuneCountInString(line); length > longestLine {
				t.Errorf("%s has a line of %d characters, want %d at most: %.60s…", name, length, longestLine, line)
			}
		}
	}
}

var (
	openingFence = regexp.MustCompile("(?m)((?:^.*\n)?)^ *```([a-z]+)\n(.*)\n")
	fileComment  = regexp.MustCompile(`^ *(#|//) [A-Za-z0-9./_-]+\.[a-z]+$`)
)

// TestSnippetsNameTheirFile: a block that belongs into a file names the file, in its first line or before the block.
// Shell and what it prints belong into no file.
func TestSnippetsNameTheirFile(t *testing.T) {
	t.Parallel()
	for name, page := range repositoryFiles(t, ".md") {
		if !strings.HasPrefix(name, "docs/how-to/") && !strings.HasPrefix(name, "docs/get-started/") && name != "README.md" {
			continue
		}
		for _, fence := range openingFence.FindAllStringSubmatch(page, -1) {
			before, kind, first := fence[1], fence[2], fence[3]
			named := fileComment.MatchString(first) || strings.HasPrefix(before, "<!-- file: ")
			if kind != "sh" && kind != "text" && !named {
				t.Errorf("%s: the %s block that begins with %q names no file", name, kind, first)
			}
		}
	}
}

// configurationBlocks returns the YAML blocks of a page that belong into snowgate.yaml.
func configurationBlocks(page string) []string {
	var found []string
	for _, block := range regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$").FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[2], "")
		if first, _, _ := strings.Cut(text, "\n"); strings.HasSuffix(first, "snowgate.yaml") {
			found = append(found, text)
		}
	}
	return found
}

// TestConfigurationSnippets has the program check every snippet of a snowgate.yaml.
func TestConfigurationSnippets(t *testing.T) {
	t.Parallel()
	checked := 0
	for name, page := range repositoryFiles(t, ".md") {
		for _, snippet := range configurationBlocks(page) {
			checked++
			text, _ := withSecrets(snippet)
			file := filepath.Join(t.TempDir(), "snowgate.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			check := exec.CommandContext(t.Context(), gatewaytest.Binary(t), "config", "-check")
			check.Env = []string{"SNOWGATE_CONFIG=" + file}
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s has a snippet that is refused:\n%s\n%s", name, out, snippet)
			}
		}
	}
	if checked < 3 {
		t.Errorf("%d snippets were checked", checked)
	}
}

// TestFirstService does what the README says about a service of one's own.
func TestFirstService(t *testing.T) {
	t.Parallel()
	bash := gatewaytest.Require(t, "bash", "bash")
	gatewaytest.Require(t, "curl", "curl")
	gatewaytest.Require(t, "jq", "jq")
	_, section, ok := strings.Cut(readFile(t, filepath.Join(repository, "README.md")), "\n## Protect a service of your own\n")
	if !ok {
		t.Fatal("README.md has no section about a service of one's own")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := operationsBlocks(section)
	if len(blocks) < 4 || blocks[len(blocks)-1].output == "" {
		t.Fatalf("the section has %d blocks of shell, and the last says that it prints %q", len(blocks), blocks[len(blocks)-1].output)
	}
	runPage(t, bash, blocks, strings.NewReplacer(
		"127.0.0.1:8080", closedAddress(t), "127.0.0.1:9090", closedAddress(t), "127.0.0.1:8081", closedAddress(t)))
}

// goTexts returns the texts that the program's code holds. Texts that are joined by + are one, with … for what is no literal.
func goTexts(t *testing.T) []string {
	t.Helper()
	var texts []string
	for name, source := range repositoryFiles(t, ".go") {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "integration/") || strings.HasPrefix(name, "bench/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				texts = append(texts, literalOf(n))
				return false
			case *ast.BasicLit:
				texts = append(texts, literalOf(n))
			}
			return true
		})
	}
	return texts
}

func literalOf(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return literalOf(n.X) + literalOf(n.Y)
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
			return text
		}
	}
	return "…"
}

// systemTexts are those of the operating system, which the program hands on.
var systemTexts = []string{"bind: address already in use"}

// saidBy reports whether one of texts has the pieces of a quotation between its …, in their order. Where the
// program makes a sentence of an error, the quotation has a capital and a full stop.
func saidBy(texts []string, quotation string) bool {
	said := func(text, wanted string) bool {
		for _, piece := range strings.Split(wanted, "…") {
			_, rest, ok := strings.Cut(text, strings.TrimSpace(piece))
			if !ok {
				return false
			}
			text = rest
		}
		return true
	}
	first, size := utf8.DecodeRuneInString(quotation)
	asError := strings.TrimSuffix(string(unicode.ToLower(first))+quotation[size:], ".")
	asFormat := strings.ReplaceAll(quotation, "SNOWGATE_", "%s") // config.Prefix
	return slices.ContainsFunc(texts, func(text string) bool {
		return said(text, quotation) || said(text, asError) || said(text, asFormat)
	})
}

var quotedError = regexp.MustCompile("(?m)^### `(.*)`$")

// TestTroubleshootingQuotes looks for each error of the page among the texts of the program.
func TestTroubleshootingQuotes(t *testing.T) {
	t.Parallel()
	page := string(readDoc(t, "how-to/troubleshooting.md"))
	texts := append(goTexts(t), systemTexts...)
	quotations := quotedError.FindAllStringSubmatch(page, -1)
	for _, quotation := range quotations {
		if !saidBy(texts, quotation[1]) {
			t.Errorf("the program does not say %q; correct docs/how-to/troubleshooting.md", quotation[1])
		}
	}
	if len(quotations) < 25 {
		t.Errorf("the page has %d errors", len(quotations))
	}
}
