package docker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// with returns c after change.
func with(c container, change func(*container)) container {
	change(&c)
	return c
}

// assembled describes the result for containers: the routes with their replicas, and the reasons
// why other containers do not serve.
func assembled(a *assembler, p picture) (routes string, reasons map[string]string) {
	found, candidates := a.assemble(p, func(string) string { return "" })
	var text []string
	for _, route := range found {
		line := route.Name + " of " + route.Owner + " " + route.Path + ":"
		for _, r := range route.Replicas {
			line += " " + r.URL.String()
		}
		text = append(text, line)
	}
	reasons = map[string]string{}
	for _, c := range candidates {
		if c.state != Serving {
			reasons[c.id] = string(c.state) + ": " + c.reason
		}
	}
	return strings.Join(text, "\n"), reasons
}

func TestAssemble(t *testing.T) {
	none := func(*container) {}
	state := func(s string) func(*container) { return func(c *container) { c.state = s } }
	health := func(s string) func(*container) { return func(c *container) { c.health = s } }
	on := func(pairs ...string) func(*container) {
		return func(c *container) {
			c.endpoints = nil
			for i := 0; i < len(pairs); i += 2 {
				e := endpoint{network: pairs[i]}
				if pairs[i+1] != "" {
					e.addresses = []netip.Prefix{netip.MustParsePrefix(pairs[i+1])}
				}
				c.endpoints = append(c.endpoints, e)
			}
		}
	}
	ports := func(p ...uint16) func(*container) { return func(c *container) { c.ports = p } }
	label := func(name, value string) func(*container) { return func(c *container) { c.labels[name] = value } }
	const serves = "a of shop/a /a: http://10.0.0.11:8080"
	tests := []struct {
		why    string
		change func(*container)
		routes string
		reason string
	}{
		{"nothing special", none, serves, ""},
		{"healthy", health("healthy"), serves, ""},
		{"not healthy yet", health("starting"), "a of shop/a /a:", "waiting: its health check has not succeeded yet"},
		{"unhealthy", health("unhealthy"), "a of shop/a /a:", "waiting: its health check fails"},
		{"paused", state("paused"), "a of shop/a /a:", "waiting: it is paused"},
		{"restarting", state("restarting"), "a of shop/a /a:", "waiting: it is restarting"},
		{"exited", func(c *container) { on("shop_net", "")(c); c.state, c.ports = "exited", nil }, "a of shop/a /a:", "waiting: it is exited"},
		{"exited, and on a network of others", func(c *container) { on("other_net", "")(c); c.state = "exited" }, "",
			"rejected: it has no network in common with the gateway: the container is on other_net, the gateway on shop_net 10.0.0.0/24"},
		{"starting, on a network of others", func(c *container) { on("other_net", "10.9.0.2/24")(c); c.health = "starting" }, "",
			"rejected: it has no network in common with the gateway: the container is on other_net, the gateway on shop_net 10.0.0.0/24"},
		{"on the host's network", on("host", ""), "", "rejected: it has no network in common with the gateway: the container is on host, the gateway on shop_net 10.0.0.0/24"},
		{"on no network", on(), "", "rejected: it has no network in common with the gateway: the container is on none, the gateway on shop_net 10.0.0.0/24"},
		{"the first that is shared, by name", on("a_net", "10.9.0.2/24", "z_net", "10.0.0.12/24"), "a of shop/a /a: http://10.0.0.12:8080", ""},
		{"the one that is named", func(c *container) {
			on("a_net", "10.0.0.9/24", "shop_net", "10.0.0.11/24")(c)
			c.labels[networkLabel] = "net"
		}, serves, ""},
		{"named in full", label(networkLabel, "shop_net"), serves, ""},
		{"one that it is not on", label(networkLabel, "other"), "",
			`rejected: it is not on the network "other" of snowgate.network, or the gateway is not: the container is on shop_net, the gateway on shop_net 10.0.0.0/24`},
		{"another prefix", on("shop_net", "10.0.0.11/16"), "", "rejected: it has no network in common with the gateway: the container is on shop_net, the gateway on shop_net 10.0.0.0/24"},
		{"loopback", on("shop_net", "127.0.0.2/8"), "", "rejected: its address 127.0.0.2 is loopback, link-local, multicast or broadcast"},
		{"a cloud's metadata", on("shop_net", "169.254.169.254/16"), "", "rejected: its address 169.254.169.254 is loopback, link-local, multicast or broadcast"},
		{"IPv6", on("shop_net", "fd00::5/64"), "a of shop/a /a: http://[fd00::5]:8080", ""},
		{"two ports", ports(80, 8080), "", "rejected: its image exposes the TCP ports 80, 8080: add the label of the one that serves, such as snowgate.port=80"},
		{"one port twice, for IPv4 and IPv6", ports(8080, 8080), serves, ""},
		{"no port", ports(), "", "rejected: Docker lists no TCP port of it: on internal networks it lists none, whatever the image exposes; add the label snowgate.port=PORT, such as snowgate.port=8080"},
		{"faulty labels", label("bad", "1"), "", "rejected: bad labels; in two lines"},
		{"docker compose run", label(composeOneOff, "True"), "", ""},
		{"docker run of an image that Compose has built", func(c *container) { delete(c.labels, composeNumber) }, "shop-1 of shop-1 /a: http://10.0.0.11:8080", ""},
		{"no number, but not one-off", func(c *container) { delete(c.labels, composeNumber); c.labels[composeOneOff] = "False" }, serves, ""},
		{"no Compose", func(c *container) { delete(c.labels, composeProject) }, "shop-1 of shop-1 /a: http://10.0.0.11:8080", ""},
		{"Swarm", func(c *container) { delete(c.labels, composeProject); c.labels[swarmService] = "stack_a" }, "stack_a of stack_a /a: http://10.0.0.11:8080", ""},
	}
	links := []netip.Prefix{
		netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("10.0.0.1/24"),
		netip.MustParsePrefix("169.254.3.4/16"), netip.MustParsePrefix("fd00::1/64"), netip.MustParsePrefix("fe80::1/64"),
	}
	for _, tt := range tests {
		p := picture{
			containers: []container{with(is("1", 11), tt.change)}, links: links[:5:5],
			networks: map[netip.Prefix]string{netip.MustParsePrefix("10.0.0.0/24"): "shop_net"},
		}
		if !strings.Contains(tt.why, "IPv6") {
			p.links = append(links[:3:3], links[4])
		}
		routes, reasons := assembled(&assembler{read: read}, p)
		if routes != tt.routes || reasons["1"] != tt.reason {
			t.Errorf("%s:\n got %q, %q\nwant %q, %q", tt.why, routes, reasons["1"], tt.routes, tt.reason)
		}
	}
}

// TestClaims: the oldest claim wins, also after its container was replaced.
func TestClaims(t *testing.T) {
	of := func(id, project string, created int64, labels ...string) container {
		c := is(id, int(created), labels...)
		c.created, c.labels[composeProject] = created, project
		return c
	}
	a := &assembler{read: read}
	see := func(why, want string, containers ...container) {
		t.Helper()
		routes, _ := assembled(a, picture{containers: containers, links: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}})
		if routes != want {
			t.Errorf("%s:\n got %q\nwant %q", why, routes, want)
		}
	}
	// The second route is named after its project, because the name is taken.
	const first, second = "a of one/a /a: http://10.0.0.20:8080", "two.a of two/a /a: http://10.0.0.30:8080"
	see("two projects", first+"\n"+second, of("2", "two", 30), of("1", "one", 20))
	see("the first is made anew", first+" http://10.0.0.40:8080\n"+second, of("1", "one", 20), of("3", "one", 40), of("2", "two", 30))
	see("its old container is gone", "a of one/a /a: http://10.0.0.40:8080\n"+second, of("2", "two", 30), of("3", "one", 40))
	see("its labels have faults", "a of two/a /a: http://10.0.0.30:8080", of("2", "two", 30), of("4", "one", 50, "bad", "1"))
	see("they are mended", "a of one/a /a: http://10.0.0.60:8080\n"+second, of("2", "two", 30), of("5", "one", 60))
	see("it is gone", "a of two/a /a: http://10.0.0.30:8080", of("2", "two", 30))
	see("it comes back as the second", "a of two/a /a: http://10.0.0.30:8080\none.a of one/a /a: http://10.0.0.60:8080", of("2", "two", 30), of("5", "one", 60))
	see("a name of its own does not give way", "a of two/a /a: http://10.0.0.30:8080\na of one/a /a: http://10.0.0.70:8080",
		of("2", "two", 30), with(of("7", "one", 70, nameLabel, "a"), func(c *container) { c.name = "shop-5" }))
}

// TestClaimsAreOfPlaces: an old owner cannot take the path of a younger owner with a new container
// that has other labels.
func TestClaimsAreOfPlaces(t *testing.T) {
	of := func(id, project string, created int64, labels ...string) container {
		c := is(id, int(created), labels...)
		c.created, c.labels[composeProject] = created, project
		return c
	}
	links := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	for _, labels := range [][]string{{"path", "/a"}, {"path", "/old", nameLabel, "a"}} {
		a := &assembler{read: read}
		victim := of("1", "victim", 20)
		assembled(a, picture{containers: []container{of("2", "evil", 10, "path", "/old", nameLabel, "old"), victim}, links: links})
		for range 2 { // the second round as after a restart
			routes, _ := a.assemble(picture{containers: []container{of("3", "evil", 30, labels...), victim}, links: links}, func(string) string { return "" })
			if routes[0].Owner != "victim/a" {
				t.Errorf("%q: the first route is that of %s, want victim/a", labels, routes[0].Owner)
			}
			a = &assembler{read: read}
		}
	}
}

// stage is an assembler in a synctest bubble.
type stage struct {
	t *testing.T
	*assembler
}

// see assembles containers. It compares the route and the names of the rejected containers.
func (s *stage) see(why, want string, rejected string, containers ...container) {
	s.t.Helper()
	links := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	routes, reasons := assembled(s.assembler, picture{containers: containers, links: links})
	var ids []string
	for id, reason := range reasons {
		if strings.HasPrefix(reason, "rejected: its labels are not those") {
			name, _, _ := strings.Cut(id, "/")
			ids = append(ids, name)
		}
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); routes != want || got != rejected {
		s.t.Errorf("%s:\n got %q, rejected %q\nwant %q, rejected %q\n%q", why, routes, got, want, rejected, reasons)
	}
}

// replica returns a container of the service shop/a with a path.
func replica(name string, host int, path string, changes ...func(*container)) container {
	c := is("", host, "snowgate.path", path, "path", path)
	c.id, c.created = name+path, int64(host)
	c.name = name
	for _, change := range changes {
		change(&c)
	}
	return c
}

func exited(c *container) { c.state = "exited" }

const atA, atB, atEvil = "a of shop/a /a:", "a of shop/a /b:", "a of shop/a /evil:"

// TestLabelsStand: labels stay in force as long as a container has them, however old other
// containers of the service are.
func TestLabelsStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t, &assembler{read: read}}
		s.see("alone", atA+" http://10.0.0.20:8080", "", replica("shop-a-1", 20, "/a"))
		forged := replica("x", 21, "/evil")
		s.see("beside a forged one", atA+" http://10.0.0.20:8080", "x", replica("shop-a-1", 20, "/a"), forged)
		time.Sleep(time.Hour)
		for _, state := range []string{"paused", "restarting", "created", "exited"} {
			s.see("while it is "+state, atA, "x", replica("shop-a-1", 20, "/a", func(c *container) { c.state = state }), forged)
		}
		s.see("while it is unhealthy", atA, "x", replica("shop-a-1", 20, "/a", func(c *container) { c.health = "unhealthy" }), forged)
		s.see("made anew, and younger than the forged one", atA+" http://10.0.0.30:8080", "x", replica("shop-a-1", 30, "/a"), forged)
		s.see("gone for a moment", "", "x", forged)
		time.Sleep(4 * time.Minute)
		s.see("gone for minutes", "", "x", forged)
		s.see("two come back", atA+" http://10.0.0.40:8080 http://10.0.0.41:8080", "x", forged, replica("shop-a-1", 40, "/a"), replica("shop-a-2", 41, "/a"))
		s.see("none is left for a moment", "", "")
		s.see("a forged one alone", "", "y", replica("y", 42, "/evil"))
		time.Sleep(standTime)
		s.see("gone for long: any other container leads", atEvil+" http://10.0.0.42:8080", "", replica("y", 42, "/evil"))
	})
}

// TestServiceChangesItsLabels: a container replaces an earlier container of the same name.
func TestServiceChangesItsLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t, &assembler{read: read}}
		forged := replica("x", 10, "/evil")
		s.see("two", atA+" http://10.0.0.20:8080 http://10.0.0.21:8080", "", replica("shop-a-1", 20, "/a"), replica("shop-a-2", 21, "/a"))
		starting := func(c *container) { c.health = "starting" }
		joined := replica("shop-a-9", 22, "/a") // with the same labels
		s.see("one has joined", atA+" http://10.0.0.20:8080 http://10.0.0.21:8080 http://10.0.0.22:8080", "x",
			forged, joined, replica("shop-a-1", 20, "/a"), replica("shop-a-2", 21, "/a"))
		s.see("the second is made anew", atA+" http://10.0.0.20:8080 http://10.0.0.22:8080", "shop-a-2 x",
			forged, joined, replica("shop-a-1", 20, "/a"), replica("shop-a-2", 31, "/b"))
		s.see("the first is not there", atA+" http://10.0.0.22:8080", "shop-a-2 x", forged, joined, replica("shop-a-2", 31, "/b"))
		s.see("it starts", atA+" http://10.0.0.22:8080", "shop-a-1 shop-a-2 x",
			forged, joined, replica("shop-a-1", 30, "/b", starting), replica("shop-a-2", 31, "/b"))
		s.see("it serves", atB+" http://10.0.0.30:8080 http://10.0.0.31:8080", "shop-a-9 x",
			forged, joined, replica("shop-a-1", 30, "/b"), replica("shop-a-2", 31, "/b"))
		s.see("the one that joined has other labels, and the service is gone", "", "shop-a-9 x", forged, replica("shop-a-9", 32, "/evil"))
		s.see("it is made anew", atB+" http://10.0.0.30:8080 http://10.0.0.31:8080", "x", forged, replica("shop-a-1", 30, "/b"), replica("shop-a-2", 31, "/b"))
		time.Sleep(time.Hour)
		s.see("later", atB+" http://10.0.0.30:8080 http://10.0.0.31:8080", "x", forged, replica("shop-a-1", 30, "/b"), replica("shop-a-2", 31, "/b"))

		s = &stage{t, &assembler{read: read}}
		named := func(c *container) { c.name = "own-name" }
		s.see("a name of its own", atA+" http://10.0.0.20:8080", "", replica("1", 20, "/a", named))
		s.see("replaced", atB+" http://10.0.0.30:8080", "x", forged, replica("2", 30, "/b", named))

		s = &stage{t, &assembler{read: read}}
		task := func(c *container) {
			delete(c.labels, composeProject)
			c.labels[swarmService] = "a"
			c.name = "a.1." + strings.ReplaceAll(c.id, "/", "")
		}
		s.see("a task of Swarm", "a of a /a: http://10.0.0.20:8080", "", replica("1", 20, "/a", task))
		s.see("the next", "a of a /b: http://10.0.0.30:8080", "1", replica("1", 20, "/a", task, exited), replica("2", 30, "/b", task))
	})
}

// TestLabelsAfterRestart: a new gateway prefers the names that Docker gives only once. Only among
// other names does age count.
func TestLabelsAfterRestart(t *testing.T) {
	start := func() *stage { return &stage{t, &assembler{read: read}} }
	old := replica("x", 10, "/evil")
	start().see("a forged one is older", atA+" http://10.0.0.20:8080", "x", old, replica("shop-a-1", 20, "/a"))
	start().see("it has a number, too", atA+" http://10.0.0.20:8080", "shop-a-7", replica("shop-a-7", 10, "/evil"), replica("shop-a-1", 20, "/a"))
	start().see("the service is stopped", atA, "x", old, replica("shop-a-1", 20, "/a", exited))
	start().see("an old name", atA+" http://10.0.0.20:8080", "x", old, replica("shop_a_1", 20, "/a"))
	start().see("names of their own: the oldest", atA+" http://10.0.0.20:8080", "z", replica("y", 20, "/a"), replica("z", 21, "/evil"))
	start().see("the oldest that runs", atA+" http://10.0.0.20:8080", "z", replica("y", 20, "/a"), replica("z", 19, "/evil", exited))
	start().see("none runs: the oldest", atA, "z", replica("y", 20, "/a", exited), replica("z", 21, "/evil", exited))
	forged := replica("x", 10, "/evil", func(c *container) {
		delete(c.labels, composeProject)
		c.labels[swarmService] = "web"
	})
	plain := replica("web", 20, "/a", func(c *container) { delete(c.labels, composeProject) })
	start().see("a container alone", "web of web /a: http://10.0.0.20:8080", "x", forged, plain)
}

// TestStandingsAreForgotten: services that come once leave nothing behind.
func TestStandingsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &assembler{read: read}
		for i := range 10_000 {
			// A container with faulty labels stays. It must not keep the claims of the others.
			c := with(is("1", 11, "path", fmt.Sprint("/", i)), func(c *container) { c.labels[composeService] = fmt.Sprint(i % 5000) })
			bad := with(is("2", 12, "bad", "1"), func(c *container) { c.labels[composeService] = "0" })
			assembled(a, picture{containers: []container{c, bad}, links: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}})
			time.Sleep(time.Second)
		}
		if len(a.standings) > 301 || len(a.claims) > 4 || len(a.known) > 2 {
			t.Errorf("%d standings, %d claims and %d readings are kept", len(a.standings), len(a.claims), len(a.known))
		}
	})
}

// TestReplicasInDifferentPlaces: port, network and scheme may differ between replicas.
func TestReplicasInDifferentPlaces(t *testing.T) {
	p := picture{
		containers: []container{is("1", 11, "snowgate.port", "80"), is("2", 12, "snowgate.network", "net", "snowgate.scheme", "h2c")},
		links:      []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")},
	}
	if routes, reasons := assembled(&assembler{read: read}, p); len(reasons) > 0 {
		t.Errorf("replicas in different places: %q %q", routes, reasons)
	}
}

func TestHealthOf(t *testing.T) {
	for status, want := range map[string]string{
		"Up 2 minutes (healthy)": "healthy", "Up 1 second (unhealthy)": "unhealthy", "Up 1 second (health: starting)": "starting",
		"Up 2 minutes": "", "Up 2 minutes (Paused)": "", "Exited (137) 5 hours ago": "", "": "",
	} {
		if got := healthOf(status); got != want {
			t.Errorf("healthOf(%q) = %q, want %q", status, got, want)
		}
	}
}
