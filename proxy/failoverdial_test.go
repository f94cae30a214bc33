package proxy_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"snowgate/proxy"
)

// dead is a dialer for which some addresses give no response: the time for a connection
// passes at once.
type dead struct {
	hosts map[string]bool

	mu     sync.Mutex
	waited []time.Duration // for those addresses
}

func (d *dead) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !d.hosts[address] {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	deadline, _ := ctx.Deadline()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waited = append(d.waited, time.Until(deadline))
	return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
}

// take returns how long connections would have been waited for since the last call.
func (d *dead) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	waited := d.waited
	d.waited = nil
	return waited
}

// A replica whose address gives no response is waited for only as long as a lost packet
// needs if there is another one, which then gets the request, whatever it is.
func TestReplicaThatDoesNotConnect(t *testing.T) {
	living := newUpstream(t, says(okResponse))
	unused := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	const post = "POST /public HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"

	d := &dead{hosts: map[string]bool{unused.Host: true}}
	g := newGateway(t, gatewayOptions{dial: d.dial}, several(unused, living.url))
	for range 2 {
		if response, _ := g.ask(t, post); response.StatusCode != http.StatusOK {
			t.Fatalf("POST = %d, want the other replica's 200", response.StatusCode)
		}
	}
	if waited := d.take(); len(waited) == 0 || slices.Max(waited) > proxy.HastyDial {
		t.Errorf("waited for connections for %v, want at most %v each", waited, proxy.HastyDial)
	}

	// The last one that can be tried gets all the time there is.
	d = &dead{hosts: map[string]bool{unused.Host: true, living.url.Host: true}}
	g = newGateway(t, gatewayOptions{dial: d.dial}, several(unused, living.url))
	if response, _ := g.ask(t, post); response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("nobody is there: %d, want 504", response.StatusCode)
	}
	if waited := d.take(); len(waited) != 2 || waited[0] > proxy.HastyDial || waited[1] <= proxy.HastyDial {
		t.Errorf("waited for connections for %v, want at most %v and then more", waited, proxy.HastyDial)
	}
}
