// Package docker discovers routes from the labels of Docker containers.
//
// A [Watcher] holds a picture of the containers that have the label
// [EnableLabel], and tells whenever the routes that follow from it change. Two
// things keep the picture true:
//
//   - Events. A container that ends, is paused, turns unhealthy or leaves a network
//     is taken out of its route at once. Anything that could add or change a route
//     starts a list a moment later, so that ten containers that start together are
//     one change.
//   - Lists. A list is the whole truth and replaces the picture. There is one at the
//     beginning, after each event, whenever the connection was lost, and every half
//     minute, because a connection that is open and carries nothing any more, such as
//     one through a proxy that has lost its other half, cannot be told from a quiet
//     hour.
//
// A list is a picture of when Docker drew it, and it may arrive after an event that
// is newer. So containers that an event took out while a list was under way stay out
// until the next one; and containers that were told to end stay out for as long as
// that may take, although Docker lists them as running until they have ended.
//
// While Docker cannot be reached the last picture stays: services go on without it.
//
// # What becomes of a container
//
// Containers with the same owner are the replicas of one service: the owner is the
// Compose project and service, the Swarm service, or else the container itself. A
// container that Compose has not started has no Compose service, although an image that
// Compose has built gives it the labels of one. A container is a replica while it runs,
// is not paused, has no health check or is healthy by it, and has an address on a network
// that the gateway has one on, too. The route of a service is there as long as it has a container at all, running or not:
// without a replica it responds with 503. One set of labels counts for a service, see standing.
//
// The watcher only ever asks with GET, and HEAD for the version of the API.
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
	// EnableLabel makes a container one that the gateway looks at.
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

// Source is that of all routes that are discovered here.
const Source = "docker"

// Reading is what the labels of a container say.
type Reading struct {
	// Enabled is false for a container that is to be left alone.
	Enabled bool
	// Route is the route to the service, but for its replicas.
	Route route.Route
	// Scheme is that of the replicas' URLs.
	Scheme string
	// Port is the port of the service; 0: the only one that the image exposes.
	Port uint16
	// Network is the name of the network to use; empty: any that is shared.
	Network string
}

// Config is the configuration of a [Watcher]. Host, Read and Publish are required.
type Config struct {
	// Host is where the Docker API is: unix:///path or tcp://host:port.
	Host string
	// Read reads the labels of a container. name is what the route is called if they
	// do not say. Its errors are logged, so they must not hold secrets, and be short.
	Read func(name string, labels map[string]string) (Reading, error)
	// Publish puts routes in force, and takes away all that it was given before. Of two
	// routes that are in each other's way the first has the older claim. It is never
	// called twice at once.
	Publish func(routes []route.Route)
	// Links returns the addresses of the gateway's own network interfaces, with the
	// lengths of their prefixes. nil: those of this machine.
	Links func() ([]netip.Prefix, error)
	Log   zerolog.Logger

	// connect is for tests; nil is the official client.
	connect func() (engine, error)
}

// maxMarks bounds what is remembered of containers by events alone.
const maxMarks = 4096

// The usual bounds of time.
const (
	// resyncEvery is how often there is a list without any event.
	resyncEvery = 30 * time.Second
	// callTimeout bounds one call, and the beginning of the stream of events.
	callTimeout = 5 * time.Second
	// quiet is how long no event must come before a list, and patience how long a
	// list is put off at most while they keep coming.
	quiet    = 100 * time.Millisecond
	patience = 500 * time.Millisecond
	// firstPause is how long to wait before Docker is called again when the connection
	// was lost; it doubles up to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// longLife is how old a stream of events must be for its end to be no failure.
	longLife = 30 * time.Minute
	// stopGrace is how long a container that was told to end stays out, should it not
	// end. It is more than docker stop waits before it kills (10 s).
	stopGrace = 30 * time.Second
	// settleTime bounds the wait for the first list, see Watcher.Settled.
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

// engine is what a watcher needs of the Docker API. Its methods are for one
// connection, and fail when ctx ends.
type engine interface {
	// containers lists all containers with [EnableLabel], running or not.
	containers(ctx context.Context) ([]container, error)
	// events calls handle with each event from the moment ready is called, until the
	// stream ends, which is always an error.
	events(ctx context.Context, ready func(), handle func(event)) error
	// networks returns the names of networks by their subnets.
	networks(ctx context.Context) (map[netip.Prefix]string, error)
	// close gives up what is not in use any more.
	close()
}
