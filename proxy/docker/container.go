package docker

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// container is one element of Docker's list of containers.
type container struct {
	id        string
	name      string
	created   int64 // Unix time
	labels    map[string]string
	state     string     // created, running, paused, restarting, removing, exited or dead
	health    string     // healthy, unhealthy or starting; empty: no health check
	ports     []uint16   // TCP ports that the image exposes, sorted
	endpoints []endpoint // sorted by network
}

// endpoint is the connection of a container to a network.
type endpoint struct {
	network string
	// addresses have the prefix length of the network; IPv4 comes first.
	addresses []netip.Prefix
}

// owner is the service whose replicas a route serves.
type owner struct {
	project, service string // project is empty outside of Compose
}

// String returns project/service, or only the service outside of Compose.
func (o owner) String() string {
	if o.project == "" {
		return o.service
	}
	return o.project + "/" + o.service
}

// owner returns the service that c is a replica of.
func (c *container) owner() owner {
	switch project, service := c.labels[composeProject], c.labels[composeService]; {
	case project != "" && service != "" && c.byCompose():
		return owner{project, service}
	case c.labels[swarmService] != "":
		return owner{"", c.labels[swarmService]}
	default:
		return owner{"", c.name}
	}
}

// byCompose reports whether Compose started c. The labels of project and service are not enough: an
// image that Compose built carries them, and docker run copies them to its containers. docker run
// never sets the two labels that byCompose checks.
func (c *container) byCompose() bool {
	return c.labels[composeNumber] != "" || c.labels[composeOneOff] != ""
}

// oneOff reports whether "docker compose run" started c. Such a container is no replica of its
// service, although it has the labels.
func (c *container) oneOff() bool { return strings.EqualFold(c.labels[composeOneOff], "true") }

// runs reports whether c has a process, which may be paused or restarting.
func (c *container) runs() bool {
	return c.state == "running" || c.state == "paused" || c.state == "restarting"
}

// idle returns the reason why c cannot be sent requests, or "".
func (c *container) idle() string {
	switch {
	case c.state != "running":
		return "it is " + c.state
	case c.health == "starting":
		return "its health check has not succeeded yet"
	case c.health == "unhealthy":
		return "its health check fails"
	}
	return ""
}

// healthOf reads the health from the status of a container, such as "Up 2 minutes (healthy)". Since
// API 1.52, the list has a field for the health.
func healthOf(status string) string {
	for _, health := range []string{"(healthy)", "(unhealthy)", "(health: starting)"} {
		if strings.HasSuffix(status, health) {
			return strings.TrimPrefix(strings.Trim(health, "()"), "health: ")
		}
	}
	return ""
}

// ownLabels returns the labels for the gateway, except port, network and scheme. Those may differ
// between the replicas of a service.
func (c *container) ownLabels() map[string]string {
	own := make(map[string]string)
	for name, value := range c.labels {
		if strings.HasPrefix(name, labelPrefix) && name != portLabel && name != networkLabel && name != schemeLabel {
			own[name] = value
		}
	}
	return own
}

// newer orders containers from newest to oldest.
func newer(a, b *container) int {
	return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(a.id, b.id))
}

// unknownPort returns the error for a container without exactly one port. The error names the label
// to add.
func (c *container) unknownPort() error {
	ports := slices.Compact(slices.Sorted(slices.Values(c.ports)))
	if len(ports) == 0 {
		return errors.New("Docker lists no TCP port of it: on internal networks it lists none, whatever the image exposes; " + //nolint:staticcheck // a name
			"add the label snowgate.port=PORT, such as snowgate.port=8080")
	}
	const shown = 8
	texts := make([]string, 0, shown)
	for _, port := range ports[:min(len(ports), shown)] {
		texts = append(texts, strconv.Itoa(int(port)))
	}
	return fmt.Errorf("its image exposes the TCP ports %s: add the label of the one that serves, such as snowgate.port=%d", strings.Join(texts, ", "), ports[0])
}

// onlyPort returns the TCP port that the image exposes. It returns false unless there is exactly
// one.
func (c *container) onlyPort() (uint16, bool) {
	ports := slices.Compact(slices.Sorted(slices.Values(c.ports)))
	if len(ports) != 1 {
		return 0, false
	}
	return ports[0], true
}
