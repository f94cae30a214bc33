package gatewaytest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"snowgate/integration/cuttest"
)

// Service is an upstream that a test writes by hand, down to the bytes.
type Service struct {
	URL string // to be put into a route

	accepted atomic.Int64 // connections
	requests atomic.Int64
}

// NewService starts an upstream on a free port. serve is called for every
// request, in a goroutine of the connection; what is left of the connection's
// bytes is read from in. The connection is closed when serve returns false.
func NewService(t testing.TB, serve func(conn net.Conn, in io.Reader, request *http.Request) bool) *Service {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &Service{URL: "http://" + listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			go s.serve(cuttest.Writes(conn), serve)
		}
	}()
	return s
}

func (s *Service) serve(conn net.Conn, serve func(net.Conn, io.Reader, *http.Request) bool) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		s.requests.Add(1)
		if !serve(conn, in, request) {
			return
		}
	}
}

// Requests returns how many requests it has received.
func (s *Service) Requests() int { return int(s.requests.Load()) }

// Connections returns how many connections were made to it.
func (s *Service) Connections() int { return int(s.accepted.Load()) }

// ClosedPort returns the URL of a port on which nobody listens.
func ClosedPort(t testing.TB) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	return "http://" + listener.Addr().String()
}
