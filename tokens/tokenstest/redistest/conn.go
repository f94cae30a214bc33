package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// conn implements the part of the Redis protocol (RESP2) that tests need.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func newConn(c net.Conn) *conn { return &conn{c, bufio.NewReader(c)} }

func (c *conn) do(command ...string) (string, error) {
	request := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, word := range command {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := c.Write(request); err != nil {
		return "", err
	}
	return c.reply()
}

// reply reads one reply. It returns the elements of an array as lines.
func (c *conn) reply() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", io.ErrUnexpectedEOF
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", fmt.Errorf("%w: %s", errServer, rest)
	case '$':
		return c.bulk(rest)
	case '*':
		return c.array(rest)
	default:
		return "", fmt.Errorf("unknown reply %q", line)
	}
}

func (c *conn) bulk(length string) (string, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return "", err
	}
	text := make([]byte, n+2)
	_, err = io.ReadFull(c.in, text)
	return string(text[:n]), err
}

func (c *conn) array(length string) (string, error) {
	n, err := strconv.Atoi(length)
	if err != nil {
		return "", err
	}
	var lines []string
	for range n {
		line, err := c.reply()
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}
