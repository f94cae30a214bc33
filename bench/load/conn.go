package load

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// question is a request that has no response yet.
type question struct {
	number int
	due    time.Time
}

// conn is a connection on which one request is under way at a time.
type conn struct {
	fd     int
	queue  []question // the first one is under way
	buffer []byte     // what was read of the response
}

// dial connects, and has writes and reads return at once.
func dial(address string) (*conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetNonblock(fd, true))
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &conn{fd: fd, buffer: make([]byte, 0, 4096)}, nil
}

// send writes a request, which is far smaller than what the kernel buffers.
func (c *conn) send(request []byte) error {
	n, err := unix.Write(c.fd, request)
	if err == nil && n < len(request) {
		err = fmt.Errorf("%d of %d bytes of a request were written", n, len(request))
	}
	return err
}

// errShape is a response of a kind that this package does not read.
var errShape = errors.New("load: an answer without Content-Length")

// receive reads once. whole says whether the response is complete; body is good
// until the next call.
func (c *conn) receive() (status int, body []byte, whole bool, err error) {
	if cap(c.buffer)-len(c.buffer) < 1024 {
		c.buffer = append(make([]byte, 0, 2*cap(c.buffer)), c.buffer...)
	}
	n, err := unix.Read(c.fd, c.buffer[len(c.buffer):cap(c.buffer)])
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, nil, false, nil
	case err != nil:
		return 0, nil, false, err
	case n == 0:
		return 0, nil, false, errors.New("the server has closed a connection")
	}
	c.buffer = c.buffer[:len(c.buffer)+n]
	head, rest, found := bytes.Cut(c.buffer, []byte("\r\n\r\n"))
	if !found {
		return 0, nil, false, nil
	}
	status, length, err := parseHead(head)
	if errors.Is(err, errShape) && status/100 != 2 {
		return status, c.buffer, true, nil // a refusal, which ends the run whatever its form is
	}
	if err != nil || len(rest) < length {
		return 0, nil, false, err
	}
	if len(rest) > length {
		return 0, nil, false, errors.New("an answer that nobody asked for")
	}
	c.buffer = c.buffer[:0]
	return status, rest, true, nil
}

var contentLength = []byte("\r\ncontent-length:")

// parseHead returns the status and the length of the body.
func parseHead(head []byte) (status, length int, err error) {
	const statusAt, statusLen = len("HTTP/1.1 "), 3
	if len(head) < statusAt+statusLen {
		return 0, 0, fmt.Errorf("%w: %q", errShape, head)
	}
	if status, err = strconv.Atoi(string(head[statusAt : statusAt+statusLen])); err != nil {
		return 0, 0, err
	}
	for at := 0; at+len(contentLength) < len(head); at++ {
		if head[at] != '\r' || !bytes.EqualFold(head[at:at+len(contentLength)], contentLength) {
			continue
		}
		value, _, _ := bytes.Cut(head[at+len(contentLength):], []byte("\r\n"))
		length, err = strconv.Atoi(string(bytes.TrimSpace(value)))
		return status, length, err
	}
	if status == 204 {
		return status, 0, nil
	}
	return status, 0, fmt.Errorf("%w: %q", errShape, head)
}
