package proxy

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"snowgate/internal/request/exchange"
	"snowgate/proxy/route"
	"snowgate/tokens"
)

// deadlines is a ResponseWriter that keeps its write deadline.
type deadlines struct {
	http.ResponseWriter
	write time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error { d.write = at; return nil }

// Hijack returns one end of a connection that is closed at the other.
func (d *deadlines) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	return ours, bufio.NewReadWriter(bufio.NewReader(ours), bufio.NewWriter(ours)), nil
}

// idleTrip returns a round trip that goes nowhere.
func idleTrip(watch Watch) (*roundTrip, *deadlines) {
	w := &deadlines{ResponseWriter: httptest.NewRecorder()}
	x := &exchange.Exchange{Token: tokens.Token{Client: "orders-worker"}}
	t := NewForwarder(Options{Watch: watch}).common.start(w, httptest.NewRequest(http.MethodGet, "/", nil), x, &entry{Policy: &route.Policy{Timeout: time.Hour}})
	return t, w
}

// TestRegisteredTooLate: the goroutine that opens a tunnel may come after the end
// of the exchange. Nothing must stay registered.
func TestRegisteredTooLate(t *testing.T) {
	watched, stopped := 0, 0
	f, _ := idleTrip(func(*tokens.Token, tokens.Requirement, func(error)) func() {
		watched++
		return func() { stopped++ }
	})
	_ = f.watch.end()
	f.watch.register()
	f.watch.register()
	if watched != 1 || stopped != 1 {
		t.Errorf("watched %d times, stopped %d times, want once each", watched, stopped)
	}
}

// TestWebSocketIsRegisteredAtOnce: as soon as the response to its handshake has
// been sent, which is before anything is read.
func TestWebSocketIsRegisteredAtOnce(t *testing.T) {
	watched := 0
	f, _ := idleTrip(func(*tokens.Token, tokens.Requirement, func(error)) func() {
		watched++
		return func() {}
	})
	conn, _, err := f.client.hijack()
	if err != nil || watched != 0 {
		t.Fatalf("Hijack() = %v, watched %d times before the tunnel is open", err, watched)
	}
	for range 2 {
		_, _ = conn.Read(make([]byte, 1))
	}
	if watched != 1 {
		t.Errorf("watched %d times, want once", watched)
	}
	_ = conn.Close()
	_ = f.watch.end()
}

// TestCutBeforeTheUpgrade: there is nothing to take over any more.
func TestCutBeforeTheUpgrade(t *testing.T) {
	f, _ := idleTrip(nil)
	f.watch.cut(tokens.ErrExpired)
	if _, _, err := f.client.hijack(); !errors.Is(err, tokens.ErrExpired) || f.exchange.Upgraded {
		t.Errorf("Hijack() = %v, upgraded %t, want the reason of the cut", err, f.exchange.Upgraded)
	}
	_ = f.watch.end()
}

// TestWriteAfterTheCut: a write that begins when the exchange was cut must not
// wait for the client, whichever of the two sets its deadline last.
func TestWriteAfterTheCut(t *testing.T) {
	f, w := idleTrip(nil)
	f.watch.begin()
	f.client.allowWrite()
	if time.Until(w.write) <= 0 {
		t.Errorf("a write has until %v", w.write)
	}
	f.watch.cut(tokens.ErrExpired)
	if !w.write.Equal(past) {
		t.Errorf("a write under way has until %v, want no time", w.write)
	}
	f.client.allowWrite()
	if !w.write.Equal(past) {
		t.Errorf("a later write has until %v, want no time", w.write)
	}
	f.client.failing = true
	f.client.allowWrite()
	if time.Until(w.write) <= 0 {
		t.Errorf("an answer that says so has until %v", w.write)
	}
	_ = f.watch.end()
}

// TestCutAfterTheEnd touches nothing: the connection may serve another request.
func TestCutAfterTheEnd(t *testing.T) {
	f, w := idleTrip(nil)
	f.watch.begin()
	_ = f.watch.end()
	f.watch.cut(tokens.ErrExpired)
	if !w.write.IsZero() || f.watch.cutBy() != nil {
		t.Errorf("an exchange that has ended was cut: deadline %v, %v", w.write, f.watch.cutBy())
	}
}
