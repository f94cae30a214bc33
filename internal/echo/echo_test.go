package echo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"snowgate/internal/echo"
)

func TestJSON(t *testing.T) {
	server := httptest.NewServer(echo.Handler("orders"))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/a%2Fb?x=1;y", strings.NewReader("four"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Thing", "here")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got echo.Received
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "orders" || got.Method != "POST" || got.Path != "/a%2Fb" || got.Query != "x=1;y" || got.Body != 4 {
		t.Errorf("echo responded with %+v", got)
	}
	if h := got.Headers["X-Thing"]; len(h) != 1 || h[0] != "here" {
		t.Errorf("echo shows X-Thing = %q, want here", h)
	}
}

func TestEvents(t *testing.T) {
	server := httptest.NewServer(echo.Handler("orders"))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || line != "event: tick\n" {
		t.Errorf("first line = %q, %v, want an event at once", line, err)
	}
}

func TestWebSocket(t *testing.T) {
	server := httptest.NewServer(echo.Handler("orders"))
	defer server.Close()
	ctx := context.Background()
	conn, response, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.Body != nil {
		defer response.Body.Close()
	}
	defer func() { _ = conn.CloseNow() }()
	for _, text := range []string{"one", "two"} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, got, err := conn.Read(ctx)
		if err != nil || string(got) != text {
			t.Errorf("echo of %q = %q, %v", text, got, err)
		}
	}
}
