// Package readonly stands between the Docker API and whoever may only look at it.
//
// A process that reaches Docker's socket is root on the host. [Proxy] lets four requests through
// and nothing else:
//
//	GET, HEAD /_ping             the version of the API
//	GET       /containers/json   the list of containers
//	GET       /networks          the list of networks
//	GET       /events            what happens to containers and networks
//
// each with the prefix /v1.NN that clients put before the path, or without. All else
// is 403: other methods, other paths and other spellings of these, requests with a
// body, and upgrades of the connection. A single container cannot be inspected: that
// would show its environment, where many keep their secrets.
//
// No byte of Docker's responses is passed on as it is. They are read, and what discovery
// needs is written anew: names, states, addresses, exposed ports, and of the labels
// those of the gateway and of Compose and Swarm that tell which service a container
// belongs to. Commands, mounts, images and other labels stay here, and so does
// everything that Docker may add one day.
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

// Bounds.
const (
	callTimeout  = 10 * time.Second // of every request but for events
	writeTimeout = 10 * time.Second // of each event
)

// Proxy answers for the Docker API. It is an [http.Handler] that is safe for
// concurrent use.
type Proxy struct {
	// Asked, if set before the first request, is told of every request to Docker: nil if Docker
	// answered, else why it cannot be reached. It may be called by many goroutines at once.
	Asked func(error)

	client   *http.Client
	requests requests // but for streams
	streams  streams
}

// New returns a proxy for the Docker API behind the socket at path. It contacts
// nobody.
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

// Ping asks Docker whether it is there, and tells Asked.
func (p *Proxy) Ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err == nil {
		var answer *http.Response
		if answer, err = p.client.Do(request); err == nil {
			defer answer.Body.Close()
		}
	}
	if p.Asked != nil {
		p.Asked(err)
	}
}

// allowed matches the targets that are let through, in the one spelling in which they
// are: it is compared with the bytes of the request line, so nothing is decoded.
var allowed = regexp.MustCompile(`^(/v[0-9]{1,2}\.[0-9]{1,3})?(/_ping|/containers/json|/networks|/events)(\?[^#]*)?$`)

// errForbidden refuses everything that is not let through.
var errForbidden = problem.New(http.StatusForbidden, "This proxy only lists containers, networks and events.", nil)

// ServeHTTP asks Docker what r asks, if it may, and responds with the part that may be
// known.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.answer(w, r); err != nil {
		problem.Write(w, r, err)
	}
}

// answer returns an error if nothing was written yet.
func (p *Proxy) answer(w http.ResponseWriter, r *http.Request) error {
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

// target returns the path without its version, if r may be answered.
func target(r *http.Request) (path string, err error) {
	match := allowed.FindStringSubmatch(r.RequestURI)
	isGet := r.Method == http.MethodGet || r.Method == http.MethodHead && match != nil && match[2] == "/_ping"
	if match == nil || !isGet || r.ContentLength != 0 || r.Header.Get("Upgrade") != "" {
		return "", errForbidden
	}
	return match[2], nil
}

// ask sends the question of r to Docker. The response is one of success.
func (p *Proxy) ask(ctx context.Context, r *http.Request) (*http.Response, error) {
	question := url.URL{Scheme: "http", Host: "docker", Path: r.URL.Path, RawQuery: query(r.URL.Query()).Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, question.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := p.client.Do(request)
	if p.Asked != nil && ctx.Err() == nil {
		p.Asked(err)
	}
	switch {
	case err != nil:
		return nil, problem.New(http.StatusBadGateway, "Docker cannot be reached.", err)
	case answer.StatusCode == http.StatusOK:
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, refusal(answer)
}

// query returns those of the parameters that are let through. "size" would have Docker
// measure the disk.
func query(given url.Values) url.Values {
	passed := url.Values{}
	for _, name := range []string{"all", "filters", "since", "until"} {
		if given.Has(name) {
			passed.Set(name, given.Get(name))
		}
	}
	return passed
}

// refusal words a response that is none of success. What Docker says is meant for
// whoever asked: mostly that it does not know the version.
func refusal(answer *http.Response) error {
	var told struct{ Message string }
	_ = json.NewDecoder(docker.BoundRefusal(answer.Body)).Decode(&told) // or it says nothing
	cause := fmt.Errorf("docker answered %s", answer.Status)
	if answer.StatusCode < 400 || answer.StatusCode > 499 {
		return problem.New(http.StatusBadGateway, "Docker failed.", cause)
	}
	return problem.New(answer.StatusCode, told.Message, cause)
}

// ping responds with the versions, by which clients choose how to speak.
func (p *Proxy) ping(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	answer, err := p.ask(ctx, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for _, name := range []string{"Api-Version", "Ostype"} {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "OK")
	return nil
}

// relay responds with the part of Docker's response that list has room for.
func relay[T any](p *Proxy, w http.ResponseWriter, r *http.Request, list *[]T) error {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	answer, err := p.ask(ctx, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(docker.BoundList(answer.Body)).Decode(list); err != nil {
		return problem.New(http.StatusBadGateway, "Docker gave no valid response.", err)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(*list) // a caller that is gone cannot be told more
	return nil
}

// events passes on what happens, until either side ends, or r is to make room for others.
func (p *Proxy) events(w http.ResponseWriter, r *http.Request) error {
	answer, err := p.ask(r.Context(), r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	controller := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	// The time limit for the request does not apply to the stream.
	if controller.SetReadDeadline(time.Time{}) != nil || controller.Flush() != nil {
		return nil
	}
	decoder := json.NewDecoder(docker.BoundEvents(answer.Body))
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
