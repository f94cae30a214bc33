package docker

import (
	"cmp"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"snowgate/internal/panics"
	"snowgate/proxy/route"
)

// maxRouteName is the maximum length of a route's name.
const maxRouteName = 64

// State says whether a container serves.
type State string

// The states of a container.
const (
	Serving  State = "serving"  // a replica of its route
	Waiting  State = "waiting"  // a replica of its route as soon as it runs and is healthy
	Rejected State = "rejected" // not accepted, see Container.Reason
)

// Container is the result for one container.
type Container struct {
	ID, Name, Owner string
	Route           string // the name of its route; empty if the container was rejected
	Address         string // with the port; only if the container serves
	State           State
	Reason          string // why the container does not serve
}

// candidate is a container that may become a replica.
type candidate struct {
	*container
	reading Reading
	network string // the network of address
	address netip.AddrPort
	state   State
	reason  string
	ending  bool // it was told to stop
}

// reject records err as the reason why c cannot be a replica.
func (c *candidate) reject(err error) {
	c.state, c.reason = Rejected, strings.ReplaceAll(err.Error(), "\n", "; ")
}

// picture is the state of Docker at one moment.
type picture struct {
	containers []container
	links      []netip.Prefix
	networks   map[netip.Prefix]string // names by subnet; only read if some container has no usable address
}

// assembler builds routes from containers. It is not safe for concurrent use.
type assembler struct {
	read   func(name string, labels map[string]string) (Reading, error)
	known  map[string]outcome // by container id; the labels of a container never change
	claims map[claim]int64    // the creation time, in Unix time, of the first container with the claim

	standings map[owner]*standing
}

// claim is the host, path and route name that the containers of an owner ask for. A claim keeps its
// age only while it stays the same. An old owner therefore cannot use new labels to take a route
// from a younger owner.
type claim struct {
	owner            owner
	host, path, name string
}

// claimOf returns the claim of a container of o whose labels were read as r.
func claimOf(o owner, r Reading) claim { return claim{o, r.Route.Host, r.Route.Path, r.Route.Name} }

// outcome is the result of reading the labels of a container.
type outcome struct {
	Reading
	err error
}

// assemble returns the routes that follow from p, the oldest claim first, and the result for each
// container. out returns the reason why a running container must get no requests, or "".
func (a *assembler) assemble(p picture, out func(id string) string) ([]route.Route, []candidate) {
	groups := a.group(p.containers)
	if a.standings == nil {
		a.standings = make(map[owner]*standing)
	}
	a.forget(groups)
	leaders := make(map[owner]*candidate)
	since := make(map[owner]int64)
	for o, members := range groups {
		for i := range members {
			members[i].judge(p, out)
		}
		if leader := a.lead(o, members); leader != nil {
			leaders[o], since[o] = leader, a.claims[claimOf(o, leader.reading)]
		}
	}
	owners := slices.SortedFunc(maps.Keys(groups), func(x, y owner) int {
		return cmp.Or(cmp.Compare(since[x], since[y]), cmp.Compare(oldest(groups[x]), oldest(groups[y])))
	})
	routes := []route.Route{}
	var all []candidate
	names := make(map[string]bool)
	for _, o := range owners {
		if leader := leaders[o]; leader != nil {
			route := leader.route(o, groups[o], names)
			names[route.Name] = true
			routes = append(routes, route)
		}
		all = append(all, groups[o]...)
	}
	return routes, all
}

// understand reads labels. A panic while it reads the labels of one container becomes the error of
// that container.
func (a *assembler) understand(name string, labels map[string]string) (r Reading, err error) {
	defer panics.Into(panics.Discovery, &err)
	return a.read(name, labels)
}

// group reads the labels of all containers. It returns the enabled containers by owner, the newest
// first, and keeps the claims that owners still have.
func (a *assembler) group(containers []container) map[owner][]candidate {
	groups := make(map[owner][]candidate)
	known, claims, faulty := make(map[string]outcome), make(map[claim]int64), make(map[owner]bool)
	for i := range containers {
		c := &containers[i]
		if c.oneOff() {
			continue
		}
		o := c.owner()
		read, seen := a.known[c.id]
		if !seen {
			read.Reading, read.err = a.understand(o.service, c.labels)
		}
		known[c.id] = read
		if read.err == nil && !read.Enabled {
			continue
		}
		one := candidate{container: c, reading: read.Reading}
		if read.err != nil {
			one.reject(read.err)
			faulty[o] = true
		}
		groups[o] = append(groups[o], one)
		wanted := claimOf(o, read.Reading)
		since, claimed := a.claims[wanted]
		if !claimed {
			since = min(cmp.Or(claims[wanted], c.created), c.created)
		}
		claims[wanted] = since
	}
	for wanted, since := range a.claims { // faulty labels do not give up the claim in force
		if s := a.standings[wanted.owner]; faulty[wanted.owner] && s != nil && s.claim == wanted {
			claims[wanted] = since
		}
	}
	for _, members := range groups {
		slices.SortFunc(members, func(a, b candidate) int { return newer(a.container, b.container) })
	}
	a.known, a.claims = known, claims
	return groups
}

// oldest returns the id of the oldest of members, which are sorted from newest to oldest.
func oldest(members []candidate) string { return members[len(members)-1].id }

// judge decides whether c can be a replica now, without regard to other containers.
func (c *candidate) judge(p picture, out func(id string) string) {
	if c.state == Rejected {
		return
	}
	network, address, err := c.place(c.reading.Network, p)
	marked := out(c.id)
	c.ending = marked == toldToEnd
	idle := cmp.Or(c.idle(), marked)
	switch {
	case err != nil && (idle == "" || !c.mayBePlaced(c.reading.Network, p)):
		// An idle container is rejected, too. A service that the gateway cannot reach belongs to
		// somebody else, and its route must not block another one.
		c.reject(err)
		return
	case idle != "":
		c.state, c.reason = Waiting, idle
		return
	}
	port := c.reading.Port
	if port == 0 {
		var ok bool
		if port, ok = c.onlyPort(); !ok {
			c.reject(c.unknownPort())
			return
		}
	}
	c.network, c.address, c.state = network, netip.AddrPortFrom(address, port), Serving
}

// route returns the route of the owner o, whose labels come from c. names are the names already in
// use.
func (c *candidate) route(o owner, members []candidate, names map[string]bool) route.Route {
	found := c.reading.Route
	found.Source, found.Owner, found.Discovered = Source, o.String(), true
	if _, told := c.labels[nameLabel]; !told && names[found.Name] && o.project != "" {
		// Another project has a service of this name.
		if name := o.project + "." + o.service; len(name) <= maxRouteName {
			found.Name = name
		}
	}
	for i := range members {
		m := &members[i]
		if m.state != Serving {
			continue
		}
		found.Replicas = append(found.Replicas, route.Replica{
			ID: m.id, Name: m.name, URL: &url.URL{Scheme: m.reading.Scheme, Host: m.address.String()},
		})
	}
	slices.SortFunc(found.Replicas, func(a, b route.Replica) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	for i := range members {
		members[i].reading.Route.Name = found.Name
	}
	return found
}

// shown returns the result for c as [Status] reports it.
func (c *candidate) shown() Container {
	shown := Container{ID: shortID(c.id), Name: c.name, Owner: c.owner().String(), State: c.state, Reason: c.reason}
	if c.state != Rejected {
		shown.Route = c.reading.Route.Name
	}
	if c.state == Serving {
		shown.Address = c.address.String()
	}
	return shown
}

// shortID returns the part of an id that docker ps prints.
func shortID(id string) string { return id[:min(12, len(id))] }
