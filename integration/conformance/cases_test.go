package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// testCase is one case of a file.
type testCase struct {
	name      string
	about     string // what the RFC asks
	gateway   string // a key of gateways
	exchanges []exchange
}

// exchange is one request and the answer to it, both with placeholders.
type exchange struct {
	request  string // header block and body, lines ended by \n
	response string
	times    int // how often it is played
}

// parse reads the cases of one file.
func parse(text string) ([]testCase, error) {
	var cases []testCase
	var before byte // first character of the line before
	for i, line := range strings.Split(text, "\n") {
		if line == "" {
			before = 0
			continue
		}
		mark, content := line[0], strings.TrimPrefix(line[1:], " ")
		if name, ok := strings.CutPrefix(line, "### "); ok {
			cases = append(cases, testCase{name: name, gateway: "root"})
			before = 0
			continue
		}
		if len(cases) == 0 {
			if mark == '#' {
				continue // about the file
			}
			return nil, fmt.Errorf("line %d: before the first case", i+1)
		}
		if err := cases[len(cases)-1].add(mark, before, content); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		before = mark
	}
	return cases, nil
}

// add takes one line into the case; before is the mark of the line above.
func (c *testCase) add(mark, before byte, content string) error {
	last := len(c.exchanges) - 1
	switch {
	case mark == '#':
		c.about += content + "\n"
	case mark == '@':
		c.gateway = content
	case mark == '*' && before == '<':
		times, err := strconv.Atoi(content)
		c.exchanges[last].times = times
		return err
	case mark == '>' && before == '>':
		c.exchanges[last].request += content + "\n"
	case mark == '>':
		c.exchanges = append(c.exchanges, exchange{request: content + "\n", times: 1})
	case mark == '<' && (before == '<' || before == '>'):
		c.exchanges[last].response += content + "\n"
	default:
		return fmt.Errorf("a line that begins with %q does not belong here", mark)
	}
	return nil
}

// split takes a header block from its body. hasBody tells that there is a blank
// line, so that the body is meant to be empty if nothing follows it.
func split(message string) (lines []string, body string, hasBody bool) {
	head, body, hasBody := strings.Cut(message, "\n\n")
	if !hasBody {
		head = strings.TrimSuffix(head, "\n")
	}
	return strings.Split(head, "\n"), strings.TrimSuffix(body, "\n"), hasBody
}

func TestParse(t *testing.T) {
	const text = "# about the file\n\n### A/1/b\n# why\n@ down\n> GET / HTTP/1.1\n>\n> x\n< HTTP/1.1 200\n* 3\n> GET /2 HTTP/1.1\n< HTTP/1.1 404\n<\n"
	cases, err := parse(text)
	if err != nil || len(cases) != 1 || len(cases[0].exchanges) != 2 {
		t.Fatalf("parse = %+v, %v", cases, err)
	}
	c := cases[0]
	if c.exchanges[0].times != 3 || c.exchanges[1].times != 1 {
		t.Errorf("times = %d, %d, want 3, 1", c.exchanges[0].times, c.exchanges[1].times)
	}
	if c.name != "A/1/b" || c.about != "why\n" || c.gateway != "down" {
		t.Errorf("case = %+v", c)
	}
	if lines, body, has := split(c.exchanges[0].request); len(lines) != 1 || body != "x" || !has {
		t.Errorf("request = %q, %q", lines, body)
	}
	if _, _, has := split(c.exchanges[0].response); has {
		t.Error("an answer without a blank line has a body")
	}
	if _, body, has := split(c.exchanges[1].response); !has || body != "" {
		t.Errorf("an answer with a blank line: %v, %q, want an empty body", has, body)
	}
	for _, wrong := range []string{"> GET /", "### A/1/b\n< HTTP/1.1 200", "### A/1/b\nGET /"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("parse(%q) succeeds", wrong)
		}
	}
}
