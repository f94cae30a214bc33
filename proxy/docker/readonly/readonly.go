// Package readonly is a proxy that gives its clients read access to a small part of the Docker API.
//
// A process that can connect to Docker's socket can become root on the host. [Proxy] forwards only
// four requests:
//
//	GET, HEAD /_ping             the version of the API
//	GET       /containers/json   the list of containers
//	GET       /networks          the list of networks
//	GET       /events            the events of containers and networks
//
// The API version before the path, such as /v1.41, is optional. The response to every other request
// is 403. That includes other methods, other paths, other spellings of these paths, requests with a
// body, and upgrades of the connection. A client cannot inspect a container, because the response
// would contain its environment, which often holds secrets.
//
// The proxy decodes each response of Docker and encodes only the fields that discovery needs: names,
// states, addresses, exposed ports, the labels of the gateway, and the labels of Compose and Swarm
// that name the service of a container. It drops commands, mounts, images, all other labels, and
// every field that a later version of Docker may add.
package readonly

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"snowgate/internal/problem"
	"snowgate/proxy/docker"
)

// Time limits.
const (
	callTimeout  = 10 * time.Second // for each request, except the event stream
	writeTimeout = 10 * time.Second // for each event
)

// Proxy is an [http.Handler] that serves the read-only part of the Docker API. It is safe for
// concurrent use.
type Proxy struct {
	// Asked, if set before the first request, is called after every request to Docker: with nil if
	// Docker responded, and else with the reason why it cannot be reached. Calls may overlap.
	Asked func(error)

	client   *http.Client
	requests requests // without event streams
	streams  streams
}

// New returns a proxy for the Docker API behind the socket at path. It does not connect.
func New(socket string) *Proxy {
	var dialer net.Dialer
	return &Proxy{
		client: &http.Client{
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, "unix", socket)
				},
				ResponseHeaderTimeout:  callTimeout,
				IdleConnTimeout:        time.Minute,
				DisableCompression:     true,
				MaxResponseHeaderBytes: docker.MaxHeader,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Ping sends /_ping to Docker and calls Asked with the result.
func (p *Proxy) Ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err == nil {
		var response *http.Response
		if response, err = p.client.Do(request); err == nil {
			defer response.Body.Close()
		}
	}
	if p.Asked != nil {
		p.Asked(err)
	}
}

// allowed matches the targets that are let through. It is compared with the bytes of the request
// line, so no other spelling of a target passes.
var allowed = regexp.MustCompile(`^(/v[0-9]{1,2}\.[0-9]{1,3})?(/_ping|/containers/json|/networks|/events)(\?[^#]*)?$`)

// errForbidden is the response to every request that is not let through.
var errForbidden = problem.New(http.StatusForbidden, "This proxy only lists containers, networks and events.", nil)

// ServeHTTP sends the request r to Docker, if it is allowed, and responds with the permitted part
// of the response.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.respond(w, r); err != nil {
		problem.Write(w, r, err)
	}
}

// respond returns an error only if nothing has been written yet.
func (p *Proxy) respond(w http.ResponseWriter, r *http.Request) error {
	path, err := target(r)
	if err != nil {
		return err
	}
	peer := peerOf(r)
	if path == "/events" {
		ctx, end := p.streams.begin(r.Context(), peer)
		defer end()
		return p.events(w, r.WithContext(ctx))
	}
	if !p.requests.begin(peer) {
		return problem.Unavailable("Too many requests are under way.", nil)
	}
	defer p.requests.end(peer)
	switch path {
	case "/_ping":
		return p.ping(w, r)
	case "/containers/json":
		return relay(p, w, r, new([]container))
	default:
		return relay(p, w, r, new([]network))
	}
}

// target returns the path of r without the API version, or an error if r is not allowed.
func target(r *http.Request) (path string, err error) {
	match := allowed.FindStringSubmatch(r.RequestURI)
	isGet := r.Method == http.MethodGet || r.Method == http.MethodHead && match != nil && match[2] == "/_ping"
	if match == nil || !isGet || r.ContentLength != 0 || r.Header.Get("Upgrade") != "" {
		return "", errForbidden
	}
	return match[2], nil
}

// ask sends the request r to Docker. It returns an error unless the status of the response is 200.
func (p *Proxy) ask(ctx context.Context, r *http.Request) (*http.Response, error) {
	question := url.URL{Scheme: "http", Host: "docker", Path: r.URL.Path, RawQuery: query(r.URL.Query()).Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, question.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := p.client.Do(request)
	if p.Asked != nil && ctx.Err() == nil {
		p.Asked(err)
	}
	switch {
	case err != nil:
		return nil, problem.New(http.StatusBadGateway, "Docker cannot be reached.", err)
	case response.StatusCode == http.StatusOK:
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusal(response)
}

// query returns the parameters that are let through. "size" is not among them, because it makes
// Docker compute the disk usage of all containers.
func query(given url.Values) url.Values {
	passed := url.Values{}
	for _, name := range []string{"all", "filters", "since", "until"} {
		if given.Has(name) {
			passed.Set(name, given.Get(name))
		}
	}
	return passed
}

// refusal converts an error response of Docker. A client error keeps its status and Docker's
// message, which the client needs. The usual reason is an API version that Docker does not support.
func refusal(response *http.Response) error {
	var told struct{ Message string }
	_ = json.NewDecoder(docker.BoundRefusal(response.Body)).Decode(&told) // without a message, it stays empty
	cause := fmt.Errorf("docker responded with %s", response.Status)
	if response.StatusCode < 400 || response.StatusCode > 499 {
		return problem.New(http.StatusBadGateway, "Docker failed.", cause)
	}
	return problem.New(response.StatusCode, told.Message, cause)
}

// ping responds with the API version of Docker, from which clients choose the version to use.
func (p *Proxy) ping(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	response, err := p.ask(ctx, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for _, name := range []string{"Api-Version", "Ostype"} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "OK")
	return nil
}

// relay responds with the fields of Docker's response that T has.
func relay[T any](p *Proxy, w http.ResponseWriter, r *http.Request, list *[]T) error {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	response, err := p.ask(ctx, r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(docker.BoundList(response.Body)).Decode(list); err != nil {
		return problem.New(http.StatusBadGateway, "Docker gave no valid response.", err)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(*list) // an error means that the client is gone
	return nil
}

// events forwards events until Docker or the client ends the stream, or p.streams does.
func (p *Proxy) events(w http.ResponseWriter, r *http.Request) error {
	response, err := p.ask(r.Context(), r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	controller := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	// The time limit for the request does not apply to the stream.
	if controller.SetReadDeadline(time.Time{}) != nil || controller.Flush() != nil {
		return nil
	}
	decoder := json.NewDecoder(docker.BoundEvents(response.Body))
	for {
		var e event
		if decoder.Decode(&e) != nil {
			return nil
		}
		if !e.known() {
			continue
		}
		_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout))
		if json.NewEncoder(w).Encode(e) != nil || controller.Flush() != nil {
			return nil
		}
	}
}
