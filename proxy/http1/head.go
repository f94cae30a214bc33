package http1

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// parseHead reads the head of a response into c.
func (c *Call) parseHead(head string) error {
	line, rest := cutLine(head)
	status, minor, err := parseStatus(line)
	if err != nil {
		return err
	}
	c.Status = status
	c.Header, err = appendFields(c.few[:0], rest)
	if err != nil {
		return err
	}
	return c.frame(minor)
}

// parseStatus reads a status line (RFC 9112 §4). It ignores the reason phrase.
func parseStatus(line string) (status, minor int, err error) {
	const shape = "HTTP/1.1 200"
	version, found := strings.CutPrefix(line, "HTTP/1.")
	if !found || len(line) < len(shape) || version[0] != '0' && version[0] != '1' || version[1] != ' ' ||
		len(line) > len(shape) && line[len(shape)] != ' ' {
		return 0, 0, malformed("status line", line)
	}
	for _, digit := range []byte(line[len(shape)-3 : len(shape)]) {
		if digit < '0' || digit > '9' {
			return 0, 0, malformed("status line", line)
		}
		status = 10*status + int(digit-'0')
	}
	if status < 100 {
		return 0, 0, malformed("status line", line)
	}
	return status, int(version[0] - '0'), nil
}

// appendFields appends the fields in lines, which end with an empty line, to list.
func appendFields(list []Field, lines string) ([]Field, error) {
	for {
		var line string
		if line, lines = cutLine(lines); line == "" {
			return list, nil
		}
		name, value, found := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		token, canonical := look(name)
		if !found || !token || !isValue(value) {
			return list, malformed("field", line)
		}
		if !canonical {
			name = http.CanonicalHeaderKey(name)
		}
		list = append(list, Field{name, value})
	}
}

// look reports whether name is a token, and whether it is spelled as [http.CanonicalHeaderKey]
// spells it. Most names are, and need no conversion.
func look(name string) (token, canonical bool) {
	canonical, begins := true, true
	for i := range len(name) {
		c := name[i]
		if kinds[c]&inToken == 0 {
			return false, false
		}
		if begins && 'a' <= c && c <= 'z' || !begins && 'A' <= c && c <= 'Z' {
			canonical = false
		}
		begins = c == '-'
	}
	return name != "", canonical
}

// cutLine returns the first of lines without its end, and the rest.
func cutLine(lines string) (line, rest string) {
	line, rest, _ = strings.Cut(lines, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

// frame determines the end of the body (RFC 9112 §6.3), and whether the connection may be used
// again after it (RFC 9112 §9.3).
func (c *Call) frame(minor int) error {
	length, coded := int64(-1), false
	lasting := minor == 1
	for _, f := range c.Header {
		switch f.Name {
		case "Content-Length":
			n, err := parseLength(f.Value)
			if err != nil || length >= 0 && n != length {
				return malformed("Content-Length", f.Value)
			}
			length = n
		case "Transfer-Encoding":
			if coded || minor == 0 || !strings.EqualFold(f.Value, "chunked") {
				return malformed("Transfer-Encoding", f.Value)
			}
			coded = true
		case "Connection":
			lasting = lasting && !hasOption(f.Value, "close")
		}
	}
	if coded && length >= 0 {
		// The coding wins (RFC 9112 §6.3). The connection is not used again, because the length
		// looks like an attack.
		length, lasting = -1, false
		c.Header = slices.DeleteFunc(c.Header, func(f Field) bool { return f.Name == "Content-Length" })
	}
	c.onlyOneLength()
	c.Length, c.coded, c.lasting = length, coded, lasting
	return nil
}

// onlyOneLength removes repeated Content-Length fields.
func (c *Call) onlyOneLength() {
	seen := false
	for i := 0; i < len(c.Header); i++ {
		if c.Header[i].Name != "Content-Length" {
			continue
		}
		if seen {
			c.Header = slices.Delete(c.Header, i, i+1)
			i--
		}
		seen = true
	}
}

// parseLength reads a length, which consists of digits only.
func parseLength(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63) // accepts no sign
	return int64(n), err
}

// hasOption reports whether option is in a comma-separated list.
func hasOption(list, option string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(one, " \t"), option) {
			return true
		}
	}
	return false
}
