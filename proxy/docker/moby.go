package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	mobycontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// moby implements engine with the official client of Docker. It serves one connection: each new
// connection negotiates the API version again, because Docker may have been upgraded meanwhile.
type moby struct {
	client  *client.Client
	timeout time.Duration // of one call
	begun   chan struct{} // gets a value when an event stream has begun
}

func newMoby(host string, timeout time.Duration) (*moby, error) {
	m := &moby{timeout: timeout, begun: make(chan struct{}, 1)}
	bounded := &http.Client{
		Transport:     &http.Transport{MaxResponseHeaderBytes: MaxHeader},
		CheckRedirect: client.CheckRedirect, // as in the default of the client
	}
	var err error
	m.client, err = client.New(client.WithHTTPClient(bounded), client.WithHost(host), client.WithScheme("http"), client.WithUserAgent("snowgate"),
		client.WithResponseHook(m.responded))
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	return m, nil
}

// close implements engine.
func (m *moby) close() { _ = m.client.Close() } // closes idle connections; cannot fail

// responded limits the body of each response before the client reads it.
func (m *moby) responded(response *http.Response) {
	switch {
	case response.StatusCode != http.StatusOK:
		response.Body = BoundRefusal(response.Body)
	case strings.HasSuffix(response.Request.URL.Path, "/events"):
		response.Body = BoundEvents(response.Body)
		select {
		case m.begun <- struct{}{}:
		default: // the value of an earlier stream is still unread
		}
	default:
		response.Body = BoundList(response.Body)
	}
}

// containers implements engine.
func (m *moby) containers(ctx context.Context) ([]container, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.timeout, errSilent)
	defer cancel()
	// The filter asks for the label, whatever its value. So the gateway can report a value that is
	// neither true nor false.
	found, err := m.client.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", EnableLabel),
	})
	if err != nil {
		return nil, because(ctx, err)
	}
	list := make([]container, len(found.Items))
	for i := range found.Items {
		list[i] = containerOf(&found.Items[i])
	}
	return list, nil
}

// networks implements engine.
func (m *moby) networks(ctx context.Context) (map[netip.Prefix]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.timeout, errSilent)
	defer cancel()
	found, err := m.client.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return nil, because(ctx, err)
	}
	names := make(map[netip.Prefix]string)
	for _, one := range found.Items {
		for _, subnet := range one.IPAM.Config {
			names[subnet.Subnet] = one.Name
		}
	}
	return names, nil
}

// events implements engine.
func (m *moby) events(ctx context.Context, ready func(), handle func(event)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(m.timeout, func() { cancel(errSilent) })
	defer timer.Stop()
	// Events returns when the response header has arrived, or the request has failed.
	stream := m.client.Events(ctx, client.EventsListOptions{
		Filters: make(client.Filters).Add("type", kinds...).Add("event", actions...),
	})
	for {
		select {
		case <-m.begun:
			timer.Stop()
			ready()
		case message := <-stream.Messages:
			handle(eventOf(message))
		case err := <-stream.Err:
			return because(ctx, err)
		}
	}
}

var (
	// errSilent says that Docker did not respond in time.
	errSilent = errors.New("docker: no response in time")
	// errClosed says that Docker ended a response before it was complete. An event stream is never
	// complete.
	errClosed = errors.New("docker: the connection was closed")
)

// because returns the cause of the end of ctx, if ctx has ended, and err otherwise. It returns
// errClosed for io.EOF and for nil.
func because(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil || errors.Is(err, io.EOF):
		return errClosed
	}
	return err
}

// containerOf converts an element of Docker's list.
func containerOf(s *mobycontainer.Summary) container {
	c := container{id: s.ID, created: s.Created, labels: s.Labels, state: string(s.State)}
	if len(s.Names) > 0 {
		c.name = strings.TrimPrefix(s.Names[0], "/")
	}
	switch {
	case s.Health == nil:
		c.health = healthOf(s.Status)
	case s.Health.Status != mobycontainer.NoHealthcheck:
		c.health = string(s.Health.Status)
	}
	for _, port := range s.Ports {
		if port.Type == "tcp" {
			c.ports = append(c.ports, port.PrivatePort)
		}
	}
	if s.NetworkSettings != nil {
		for name, at := range s.NetworkSettings.Networks {
			c.endpoints = append(c.endpoints, endpointOf(name, at))
		}
	}
	slices.SortFunc(c.endpoints, func(a, b endpoint) int { return strings.Compare(a.network, b.network) })
	return c
}

func endpointOf(name string, at *network.EndpointSettings) endpoint {
	e := endpoint{network: name}
	if at == nil {
		return e
	}
	if at.IPAddress.IsValid() {
		e.addresses = append(e.addresses, netip.PrefixFrom(at.IPAddress, at.IPPrefixLen))
	}
	if at.GlobalIPv6Address.IsValid() {
		e.addresses = append(e.addresses, netip.PrefixFrom(at.GlobalIPv6Address, at.GlobalIPv6PrefixLen))
	}
	return e
}

// eventOf converts an event of Docker.
func eventOf(m events.Message) event {
	e := event{action: string(m.Action), signal: m.Actor.Attributes["signal"]}
	switch m.Type {
	case events.ContainerEventType:
		e.container = m.Actor.ID
		_, e.enabled = m.Actor.Attributes[EnableLabel]
	case events.NetworkEventType:
		e.container, e.network = m.Actor.Attributes["container"], m.Actor.Attributes["name"]
		e.enabled = true // network events do not carry the label, and the gateway's own networks matter, too
	}
	return e
}
