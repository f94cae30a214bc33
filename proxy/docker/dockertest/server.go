// Package dockertest provides a fake Docker API for tests. It serves the calls that discovery
// makes, and simulates faults.
package dockertest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Container is a container that the API lists.
type Container struct {
	ID, Name string
	Created  int64
	Labels   map[string]string
	State    string // empty: running
	Status   string // such as "Up 2 seconds (healthy)"
	Port     uint16 // exposed by the image; 0: none
	Network  string // empty: bridge
	Address  string // empty: none
	Bits     int    // prefix length of the network; 0: 24
}

// Fault is a fault that the API simulates.
type Fault int

// The faults.
const (
	None     Fault = iota
	Hang           // requests are accepted and get no response
	Broken         // 500
	Garbage        // no JSON
	Huge           // a response without end
	NoEvents       // events are refused, lists are not
)

// Server is a fake Docker API. Its methods are safe for concurrent use.
type Server struct {
	// Host is the address for the gateway's configuration. Socket is the path, if it is a socket.
	Host, Socket string

	t        testing.TB
	listener net.Listener
	server   *http.Server

	mu         sync.Mutex
	containers []Container
	networks   map[string]string // subnets by name
	fault      Fault
	ended      chan struct{} // closed to end the running requests
	streams    map[chan string]struct{}
	requests   []string
}

// Start starts an API on a Unix socket or on TCP. The API ends with the test.
func Start(t testing.TB, network string) *Server {
	t.Helper()
	s := &Server{t: t, streams: make(map[chan string]struct{}), ended: make(chan struct{}), networks: make(map[string]string)}
	address := "127.0.0.1:0"
	if network == "unix" {
		s.Socket = filepath.Join(t.TempDir(), "d.sock")
		address = s.Socket
	}
	s.listen(network, address)
	s.Host = network + "://" + s.listener.Addr().String()
	t.Cleanup(s.Stop)
	return s
}

func (s *Server) listen(network, address string) {
	listener, err := new(net.ListenConfig).Listen(s.t.Context(), network, address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.listener = listener
	s.server = &http.Server{Handler: http.HandlerFunc(s.respond), ReadHeaderTimeout: time.Minute}
	server := s.server
	go func() { _ = server.Serve(listener) }()
}

// Stop closes the API and all connections to it.
func (s *Server) Stop() {
	s.mu.Lock()
	close(s.ended)
	s.ended = make(chan struct{})
	s.mu.Unlock()
	_ = s.server.Close()
}

// Restart opens the API again at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.listen(s.listener.Addr().Network(), s.listener.Addr().String())
}

// Set replaces the list of containers. It sends no event.
func (s *Server) Set(containers ...Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = slices.Clone(containers)
}

// AddNetwork adds a network to the list.
func (s *Server) AddNetwork(name, subnet string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.networks[name] = subnet
}

// SetFault sets the fault of later requests. Requests that hang stay so until the client gives up
// or Stop is called.
func (s *Server) SetFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// CutEvents ends all streams of events.
func (s *Server) CutEvents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ended)
	s.ended = make(chan struct{})
}

// Watchers returns the number of open event streams.
func (s *Server) Watchers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Requests returns the request lines so far, without the queries.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Event sends an event about the container id to all event streams. attributes are pairs of names
// and values.
func (s *Server) Event(action, id string, attributes ...string) {
	s.emit("container", action, id, append([]string{"snowgate.enable", "true"}, attributes...))
}

// Emit writes text to all event streams, unchanged.
func (s *Server) Emit(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range s.streams {
		stream <- text
	}
}

func (s *Server) emit(kind, action, id string, attributes []string) {
	given := make(map[string]string)
	for i := 0; i < len(attributes); i += 2 {
		given[attributes[i]] = attributes[i+1]
	}
	text, _ := json.Marshal(map[string]any{"Type": kind, "Action": action, "Actor": map[string]any{"ID": id, "Attributes": given}})
	s.Emit(string(text) + "\n")
}

var version = regexp.MustCompile(`^/v1\.[0-9]+`)

func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	path := version.ReplaceAllString(r.URL.Path, "")
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+path)
	fault, ended := s.fault, s.ended
	s.mu.Unlock()
	w.Header().Set("Api-Version", "1.41")
	switch {
	case fault == Hang:
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	case fault == Broken, fault == NoEvents && path == "/events":
		http.Error(w, `{"message":"it is broken"}`, http.StatusInternalServerError)
	case path == "/_ping":
		_, _ = w.Write([]byte("OK"))
	case fault == Garbage:
		_, _ = w.Write([]byte(`[{"Id":7,`))
	case fault == Huge:
		s.huge(w, path)
	case path == "/containers/json":
		s.list(w, r)
	case path == "/networks":
		s.listNetworks(w)
	case path == "/events":
		s.stream(w, r, ended)
	default:
		http.Error(w, `{"message":"page not found"}`, http.StatusNotFound)
	}
}

// huge sends a response without end.
func (s *Server) huge(w http.ResponseWriter, path string) {
	text := strings.Repeat(`{"Id":"x"},`, 1000)
	if path == "/events" {
		text = strings.Repeat("x", 10_000)
	}
	_, err := w.Write([]byte(`["`))
	for err == nil {
		_, err = w.Write([]byte(text))
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.Query().Get("filters"), "snowgate.enable") || r.URL.Query().Get("all") != "1" {
		s.t.Errorf("discovery lists %s", r.URL.RawQuery)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []map[string]any{}
	for _, c := range s.containers {
		list = append(list, c.summary())
	}
	_ = json.NewEncoder(w).Encode(list)
}

// summary returns c as Docker lists it, including fields that discovery must not need.
func (c *Container) summary() map[string]any {
	pick := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	var ports []map[string]any
	if c.Port != 0 {
		ports = append(ports, map[string]any{"PrivatePort": c.Port, "Type": "tcp"}, map[string]any{"PrivatePort": 9, "Type": "udp"})
	}
	bits := c.Bits
	if bits == 0 {
		bits = 24
	}
	return map[string]any{
		"Id": c.ID, "Names": []string{"/" + c.Name}, "Created": c.Created, "Labels": c.Labels, "Ports": ports,
		"State": pick(c.State, "running"), "Status": pick(c.Status, "Up 2 seconds"), "Command": "run --password hunter2",
		"Mounts":     []map[string]any{{"Source": "/root/secrets"}},
		"HostConfig": map[string]any{"NetworkMode": pick(c.Network, "bridge")},
		"NetworkSettings": map[string]any{"Networks": map[string]any{pick(c.Network, "bridge"): map[string]any{
			"IPAddress": c.Address, "IPPrefixLen": bits, "Gateway": "", "GlobalIPv6Address": "", "MacAddress": "",
		}}},
	}
}

func (s *Server) listNetworks(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []map[string]any{{"Name": "none", "Id": "0", "IPAM": map[string]any{"Config": nil}}}
	for name, subnet := range s.networks {
		list = append(list, map[string]any{"Name": name, "Id": name, "IPAM": map[string]any{"Config": []map[string]any{{"Subnet": subnet}}}})
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, ended <-chan struct{}) {
	events := make(chan string, 1000)
	s.mu.Lock()
	s.streams[events] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, events)
		s.mu.Unlock()
	}()
	controller := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	_ = controller.Flush()
	for {
		select {
		case text := <-events:
			_, _ = fmt.Fprint(w, text)
			_ = controller.Flush()
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}
