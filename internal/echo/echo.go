// Package echo is an upstream for experiments. Its response shows the request that it received, as
// the gateway forwarded it.
//
// It responds to every method and path with JSON, to a WebSocket handshake with an echo of each
// message, and to a request that accepts text/event-stream with one event per second.
package echo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// maxBody limits the request body: enough for experiments with large uploads.
const maxBody = 1 << 40

// Received is the JSON response.
type Received struct {
	Name     string              `json:"name"`     // the name the upstream was started with
	Hostname string              `json:"hostname"` // name of the machine, different for each replica; for a container, its id
	Method   string              `json:"method"`   //
	Path     string              `json:"path"`     // as on the request line, still encoded
	Query    string              `json:"query"`    // as on the request line
	Host     string              `json:"host"`     //
	Headers  map[string][]string `json:"headers"`  //
	Body     int64               `json:"body"`     // bytes of the request body
}

// Handler returns the upstream called name. It is safe for concurrent use and keeps no state.
func Handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
			serveWebSocket(w, r)
		case strings.Contains(r.Header.Get("Accept"), "text/event-stream"):
			serveEvents(w, r)
		default:
			serveJSON(w, r, name)
		}
	})
}

// hostname returns the name of the machine, or "".
var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return name
})

func serveJSON(w http.ResponseWriter, r *http.Request, name string) {
	n, err := io.Copy(io.Discard, io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the client has gone away
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(Received{
		Name: name, Hostname: hostname(), Method: r.Method, Path: path, Query: query,
		Host: r.Host, Headers: r.Header, Body: n,
	})
}

// serveEvents sends one server-sent event per second until the client goes away.
func serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		if _, err := fmt.Fprintf(w, "event: tick\nid: %d\ndata: %s\n\n", n, time.Now().UTC().Format(time.RFC3339)); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// serveWebSocket sends each message back.
func serveWebSocket(w http.ResponseWriter, r *http.Request) {
	// Any origin is allowed: there is nothing to protect, and the gateway has checked the request.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // Accept has sent the response
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		if err := echoMessage(r.Context(), conn); err != nil {
			return
		}
	}
}

func echoMessage(ctx context.Context, conn *websocket.Conn) error {
	kind, in, err := conn.Reader(ctx)
	if err != nil {
		return err
	}
	out, err := conn.Writer(ctx, kind)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
