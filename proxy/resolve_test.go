package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/proxy"
)

// names is a resolver whose responses tests change.
type names struct {
	mu        sync.Mutex
	responses map[string][]netip.Addr
	failure   error
	lookUps   int
}

func (n *names) set(host string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.responses == nil {
		n.responses = make(map[string][]netip.Addr)
	}
	n.responses[host] = nil
	for _, text := range addresses {
		n.responses[host] = append(n.responses[host], netip.MustParseAddr(text))
	}
}

func (n *names) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure = err
}

func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lookUps
}

// LookupNetIP implements [proxy.Resolver].
func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookUps++
	if n.failure != nil {
		return nil, n.failure
	}
	if len(n.responses[host]) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return append([]netip.Addr(nil), n.responses[host]...), nil
}

// onePort returns services on one port of several addresses.
func onePort(t *testing.T, s script, addresses ...string) (port string, services []*testService) {
	t.Helper()
	for range 20 {
		var listeners []net.Listener
		port = "0"
		for _, address := range addresses {
			listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
			if err != nil {
				break // somebody has the port there
			}
			_, port, _ = net.SplitHostPort(listener.Addr().String())
			listeners = append(listeners, listener)
		}
		if len(listeners) == len(addresses) {
			for _, listener := range listeners {
				services = append(services, serveUpstream(t, listener, s))
			}
			return port, services
		}
		for _, listener := range listeners {
			listener.Close()
		}
	}
	t.Fatal("no port is free on all addresses")
	return "", nil
}

func received(services []*testService) string {
	var counts []string
	for _, one := range services {
		counts = append(counts, fmt.Sprint(len(one.requests)))
	}
	return strings.Join(counts, " ")
}

// scaled is a gateway with one route to a name, and the services behind it.
func scaled(t *testing.T, s script) (g *gateway, dns *names, clock *testClock, services []*testService) {
	t.Helper()
	dns, clock = new(names), newTestClock()
	port, services := onePort(t, s, "127.0.0.1", "127.0.0.2", "127.0.0.3")
	dns.set("orders", "127.0.0.1")
	g = newGateway(t, gatewayOptions{resolver: dns, now: clock.time}, public(mustParse(t, "http://orders:"+port)))
	return g, dns, clock, services
}

// later lets the addresses of a name become old, and waits until they were looked
// up again.
func later(t *testing.T, g *gateway, dns *names, clock *testClock, replicas int) {
	t.Helper()
	clock.advance(proxy.LookAgain + time.Millisecond)
	before := dns.count()
	g.statuses(t, 1, get("/public", "")) // this one is not made to wait
	eventually(t, "the name was looked up again", func() bool {
		return dns.count() > before && len(g.router.Replicas("public")) == replicas
	})
}

// TestScaling: what `docker compose up --scale` does to a name.
func TestScaling(t *testing.T) {
	g, dns, clock, services := scaled(t, says(okResponse))
	g.statuses(t, 3, get("/public", ""))
	if got := received(services); got != "3 0 0" {
		t.Fatalf("with one address: %s", got)
	}
	dns.set("orders", "127.0.0.3", "127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1")
	later(t, g, dns, clock, 3)
	g.statuses(t, 9, get("/public", ""))
	if got := received(services); got != "7 3 3" {
		t.Errorf("with three addresses: %s, want 3 more each", got)
	}
	lookUps := dns.count()
	g.statuses(t, 9, get("/public", ""))
	if dns.count() != lookUps {
		t.Error("a name is looked up again before its time")
	}
	dns.set("orders", "127.0.0.2")
	later(t, g, dns, clock, 1)
	before := received(services[:1]) + received(services[2:])
	g.statuses(t, 6, get("/public", ""))
	if after := received(services[:1]) + received(services[2:]); after != before {
		t.Errorf("addresses that are gone got requests: %s, before %s", after, before)
	}
}

// TestServiceMoved: to another address, where nobody listens at the old one. The
// name is looked up at once, and the request is not lost.
func TestServiceMoved(t *testing.T) {
	g, dns, _, services := scaled(t, says(okResponse))
	g.statuses(t, 1, get("/public", ""))
	services[0].listener.Close()
	services[0].hangUp()
	dns.set("orders", "127.0.0.2")
	raw := "POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
	eventually(t, "the connection to the old address is gone", func() bool { return g.statuses(t, 1, raw)[0] == http.StatusOK })
	if got := services[1].received(t); !strings.HasSuffix(got, "hello") {
		t.Errorf("the service got %q at its new address", got)
	}
	if states := g.router.Replicas("public"); len(states) != 1 || !strings.HasPrefix(states[0].Address, "127.0.0.2:") {
		t.Errorf("replicas %+v, want the new address", states)
	}
}

// TestNameIsGone: its addresses may be somebody else's now. But a resolver that
// does not answer says nothing.
func TestNameIsGone(t *testing.T) {
	g, dns, clock, services := scaled(t, says(okResponse))
	g.statuses(t, 1, get("/public", ""))
	dns.fail(errors.New("the resolver is gone"))
	later(t, g, dns, clock, 1)
	clock.advance(time.Hour)
	if got := g.statuses(t, 1, get("/public", ""))[0]; got != http.StatusOK {
		t.Errorf("without a resolver = %d, want 200 from the address that is known", got)
	}
	dns.fail(nil)
	dns.set("orders")
	clock.advance(time.Hour)
	before := received(services)
	if got := g.statuses(t, 1, get("/public", ""))[0]; got != http.StatusBadGateway || received(services) != before {
		t.Errorf("a name that is gone = %d, want 502 and no request: before %s, after %s", got, before, received(services))
	}
	dns.set("orders", "127.0.0.3")
	if got := g.statuses(t, 1, get("/public", ""))[0]; got != http.StatusOK || len(services[2].requests) != 1 {
		t.Errorf("a name that is back = %d, want 200", got)
	}
}

// TestNameThatWasNotUsed is looked up before anything is sent.
func TestNameThatWasNotUsed(t *testing.T) {
	g, dns, clock, services := scaled(t, says(okResponse))
	g.statuses(t, 1, get("/public", ""))
	dns.set("orders", "127.0.0.2")
	clock.advance(time.Minute)
	g.statuses(t, 1, get("/public", ""))
	if got := received(services); got != "1 1 0" {
		t.Errorf("%s, want the second request at the new address", got)
	}
}

// TestConnectionsOfAGoneAddressAreClosed, and streams on them go on.
func TestConnectionsOfAGoneAddressAreClosed(t *testing.T) {
	g, dns, clock, services := scaled(t, says(okResponse))
	g.statuses(t, 1, get("/public", ""))
	dns.set("orders", "127.0.0.2")
	later(t, g, dns, clock, 1)
	eventually(t, "the connection is closed", func() bool { return services[0].open() == 0 })
}
