// Package docker discovers routes from the labels of Docker containers.
//
// A [Watcher] keeps a list of the containers that have the label [EnableLabel], and publishes the
// routes whenever they change. Two sources keep the list current:
//
//   - Events. A container that ends, is paused, becomes unhealthy or leaves a network is taken out
//     of its route at once. An event that could add or change a route starts a new list a moment
//     later, so ten containers that start together cause one change.
//   - Lists. A list replaces everything that the watcher knew. The watcher asks for one at the
//     start, after events, after each lost connection, and every 30 seconds. The regular lists are
//     needed because a dead connection looks like a quiet one, for example if a proxy in between
//     has lost its connection to Docker.
//
// A list describes the moment at which Docker made it, and may arrive after a newer event.
// Therefore a container that an event took out while a list was under way stays out until the next
// list. Docker also lists a container as running until it has ended. So a container that was told
// to stop stays out for as long as stopping may take.
//
// While Docker cannot be reached, the last routes stay in force.
//
// # Which containers become replicas
//
// Containers with the same owner are the replicas of one service. The owner is the Compose project
// and service, the Swarm service, or else the container itself. A container that Compose did not
// start has no Compose service, even if an image that Compose built gives it the labels of one.
//
// A container is a replica if it runs, is not paused, passes its health check if it has one, and
// has an address on a network of the gateway. The route of a service exists as long as the service
// has a container, running or not. A route without a replica responds with 503. One set of labels
// counts for a service, see standing.
//
// The watcher sends only GET requests, and HEAD for the version of the API.
package docker

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"snowgate/proxy/route"
)

// Labels that this package reads. [Config.Read] reads the others.
const (
	// EnableLabel is the label without which the gateway ignores a container.
	EnableLabel = "snowgate.enable"

	labelPrefix    = "snowgate."
	nameLabel      = "snowgate.name"
	networkLabel   = "snowgate.network"
	portLabel      = "snowgate.port"
	schemeLabel    = "snowgate.scheme"
	composeProject = "com.docker.compose.project"
	composeService = "com.docker.compose.service"
	composeOneOff  = "com.docker.compose.oneoff"
	composeNumber  = "com.docker.compose.container-number"
	swarmService   = "com.docker.swarm.service.name"
)

// LooksAt reports whether this package or [Config.Read] reads a label. A filter between Docker and
// a [Watcher] may remove all others.
func LooksAt(label string) bool {
	switch label {
	case composeProject, composeService, composeOneOff, composeNumber, swarmService:
		return true
	}
	return strings.HasPrefix(label, labelPrefix)
}

// Source is the source of all routes that this package discovers.
const Source = "docker"

// Reading is the meaning of a container's labels.
type Reading struct {
	// Enabled is false for a container that the gateway must ignore.
	Enabled bool
	// Route is the route to the service, without its replicas.
	Route route.Route
	// Scheme is the scheme of the replicas' URLs.
	Scheme string
	// Port is the port of the service; 0: the only one that the image exposes.
	Port uint16
	// Network is the name of the network to use; empty: any network of the gateway.
	Network string
}

// Config is the configuration of a [Watcher]. Host, Read and Publish are required.
type Config struct {
	// Host is the address of the Docker API: unix:///path or tcp://host:port.
	Host string
	// Read reads the labels of a container. The route is called name unless the labels say
	// otherwise. The errors of Read are logged, so they must be short and hold no secrets.
	Read func(name string, labels map[string]string) (Reading, error)
	// Publish puts routes in force and removes all routes of the call before. If two routes
	// conflict, the first one has the older claim. Calls of Publish never overlap.
	Publish func(routes []route.Route)
	// Links returns the addresses of the gateway's own network interfaces with their prefix
	// lengths. nil: those of this machine.
	Links func() ([]netip.Prefix, error)
	Log   zerolog.Logger

	// connect replaces the official client in tests; nil: the official client.
	connect func() (engine, error)
}

// maxMarks limits the number of containers that are known from events alone.
const maxMarks = 4096

// Times.
const (
	// resyncEvery is the interval of lists without any event.
	resyncEvery = 30 * time.Second
	// callTimeout limits one call, and the wait for the first bytes of the event stream.
	callTimeout = 5 * time.Second
	// A list starts after quiet without an event. If events keep coming, it starts after patience.
	quiet    = 100 * time.Millisecond
	patience = 500 * time.Millisecond
	// firstPause is the wait before the watcher connects again. It doubles up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// The end of an event stream counts as a failure only if the stream is younger than longLife.
	longLife = 30 * time.Minute
	// stopGrace is how long a container that was told to stop, but does not end, gets no requests.
	// It is longer than docker stop waits before it kills (10 s).
	stopGrace = 30 * time.Second
	// settleTime limits the wait for the first list, see Watcher.Settled.
	settleTime = 10 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Links == nil {
		c.Links = ownLinks
	}
	if c.connect == nil {
		c.connect = func() (engine, error) { return newMoby(c.Host, callTimeout) }
	}
	return c
}

// engine is the part of the Docker API that a watcher uses. An engine serves one connection. Its
// methods fail when ctx ends.
type engine interface {
	// containers lists all containers with [EnableLabel], running or not.
	containers(ctx context.Context) ([]container, error)
	// events calls ready when the stream begins, and handle for each event. It returns when the
	// stream ends, always with an error.
	events(ctx context.Context, ready func(), handle func(event)) error
	// networks returns the names of networks by their subnets.
	networks(ctx context.Context) (map[netip.Prefix]string, error)
	// close closes idle connections.
	close()
}
