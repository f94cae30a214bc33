package cuttest

import (
	"net"
	"net/http"
	"net/http/httptest"
)

// Listener returns l with connections whose Write goes in pieces, see [Writes].
func Listener(l net.Listener) net.Listener { return cutting{l} }

type cutting struct{ net.Listener }

// Accept implements [net.Listener].
func (l cutting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Writes(conn), nil
}

// NewServer is [httptest.NewServer] with responses in pieces.
func NewServer(handler http.Handler) *httptest.Server {
	server := NewUnstartedServer(handler)
	server.Start()
	return server
}

// NewUnstartedServer is [httptest.NewUnstartedServer] with responses in pieces.
func NewUnstartedServer(handler http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Listener = Listener(server.Listener)
	return server
}
