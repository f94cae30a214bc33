package transport

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"snowgate/proxy/http1"
)

// A request that has chosen a replica just before that is let go does not keep its connection.
func TestNothingIsKeptOfAReplicaThatIsGone(t *testing.T) {
	closed := make(chan struct{}, 1)
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "answer")
	}))
	service.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	service.Start()
	defer service.Close()
	address := service.Listener.Addr().String()
	for name, way := range map[string]Transport{
		"plain": newPlain(address, DialService), "standard": newStandard(address, HTTP11, DialService),
	} {
		way.CloseIdleConnections()
		a, err := way.Probe(t.Context(), &Destination{Scheme: "http", Host: address}, &http1.Request{Method: http.MethodGet, Path: "/", Host: address})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := io.ReadAll(a.Body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = a.Body.Close()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the connection is kept", name)
		}
	}
}
