package clientconn_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"snowgate/internal/clientconn"
)

// plainListener only wraps the accepted connections.
type plainListener struct {
	net.Listener

	waiters clientconn.Waiters
}

func (l *plainListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return clientconn.Wrap(conn, &l.waiters), nil
}

// TestLinger: the client sends more than the server reads before it closes the connection. Only
// then does the client read the response. It gets the whole response, and the end of the
// connection.
func TestLinger(t *testing.T) {
	body := bytes.Repeat([]byte("response "), 100_000)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = w.Write(body)
	}))
	server.Listener = &plainListener{Listener: server.Listener}
	closed := make(chan struct{})
	server.Config.ConnContext = clientconn.ConnContext
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			c.(*clientconn.Conn).Linger()
		case http.StateClosed:
			close(closed)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1000)); err != nil {
		t.Fatal(err)
	}
	<-closed
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes of %d, then %v", len(got), len(body), err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after the response: %v, want EOF", err)
	}
}

// TestLingerEnds: the connection closes even if the client never closes its side.
func TestLingerEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	inner, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn := clientconn.Wrap(inner, new(clientconn.Waiters))
	conn.Linger()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, err := client.Write(make([]byte, 100)); err != nil {
			return // the connection is closed
		}
	}
}
