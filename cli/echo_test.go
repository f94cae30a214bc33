package cli

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"
)

// An upstream that drains still answers, and says that it is about to end: to who
// holds a connection, and to who asks for its health.
func TestEchoDrains(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	ended := make(chan error, 1)
	upstream := echoServer{name: "orders", healthPath: "/healthz", drain: time.Second}
	go func() { ended <- upstream.serve(ctx, listener) }()
	transport := new(http.Transport)
	ask := func(path string, wantStatus int) (closes bool) {
		t.Helper()
		response, err := (&http.Client{Transport: transport}).Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != wantStatus {
			t.Errorf("GET %s = %d, want %d", path, response.StatusCode, wantStatus)
		}
		return response.Close
	}
	ask("/healthz", http.StatusOK)
	if ask("/", http.StatusOK) {
		t.Error("the connection is closed before the end")
	}
	terminate()
	for !ask("/", http.StatusOK) { // it begins a moment later
		transport.CloseIdleConnections()
	}
	ask("/healthz", http.StatusServiceUnavailable)
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}
