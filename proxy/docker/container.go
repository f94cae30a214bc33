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

// container is what is known of a container from a list.
type container struct {
	id        string
	name      string
	created   int64 // Unix time
	labels    map[string]string
	state     string     // created, running, paused, restarting, removing, exited or dead
	health    string     // healthy, unhealthy, starting; empty: there is no health check
	ports     []uint16   // TCP ports that the image exposes, sorted
	endpoints []endpoint // sorted by network
}

// endpoint is a container's place on a network.
type endpoint struct {
	network string
	// addresses are with the length of the network's prefix, IPv4 first.
	addresses []netip.Prefix
}

// owner is whose a route is: the service that the container is a replica of.
type owner struct {
	project, service string // project is empty outside of Compose
}

// String returns the owner for people: project/service.
func (o owner) String() string {
	if o.project == "" {
		return o.service
	}
	return o.project + "/" + o.service
}

// owner returns the service of c.
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

// byCompose reports whether Compose has started c. An image that Compose has built has the labels of
// project and service as well, and hands them to what docker run starts; these two it has not.
func (c *container) byCompose() bool {
	return c.labels[composeNumber] != "" || c.labels[composeOneOff] != ""
}

// oneOff tells that c is not a replica of its service, although it has its labels:
// it was started by "docker compose run".
func (c *container) oneOff() bool { return strings.EqualFold(c.labels[composeOneOff], "true") }

// runs tells that c has a process, whether or not it can be sent requests now.
func (c *container) runs() bool {
	return c.state == "running" || c.state == "paused" || c.state == "restarting"
}

// idle returns why c cannot be sent requests, or nothing.
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

// healthOf finds the health in the status of a container, such as "Up 2 minutes
// (healthy)". Since API 1.52 there is a field for it.
func healthOf(status string) string {
	for _, health := range []string{"(healthy)", "(unhealthy)", "(health: starting)"} {
		if strings.HasSuffix(status, health) {
			return strings.TrimPrefix(strings.Trim(health, "()"), "health: ")
		}
	}
	return ""
}

// ownLabels returns the labels that are for the gateway, but for those that tell
// where a container is: they may differ between the replicas of a service.
func (c *container) ownLabels() map[string]string {
	own := make(map[string]string)
	for name, value := range c.labels {
		if strings.HasPrefix(name, labelPrefix) && name != portLabel && name != networkLabel && name != schemeLabel {
			own[name] = value
		}
	}
	return own
}

// newer orders containers from the newest to the oldest.
func newer(a, b *container) int {
	return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(a.id, b.id))
}

// unknownPort says why the port of c cannot be told, and which label to add.
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

// onlyPort returns the TCP port that the image exposes, if it is one.
func (c *container) onlyPort() (uint16, bool) {
	ports := slices.Compact(slices.Sorted(slices.Values(c.ports)))
	if len(ports) != 1 {
		return 0, false
	}
	return ports[0], true
}
