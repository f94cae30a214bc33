package limit

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestNetwork(t *testing.T) {
	tests := []struct{ addr, want, why string }{
		{"192.0.2.1", "192.0.2.1", ""},
		{"::ffff:192.0.2.1", "192.0.2.1", "the same host, seen by an IPv6 socket"},
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", "a host has all of its /64"},
		{"2001:db8:1:2:ffff::", "2001:db8:1:2::", ""},
		{"2001:db8:1:3::1", "2001:db8:1:3::", "another network"},
		{"fe80::1%eth0", "fe80::", "the zone is ours, not the caller's"},
	}
	for _, tt := range tests {
		if got := network(netip.MustParseAddr(tt.addr)); got.String() != tt.want {
			t.Errorf("network(%s) = %s, want %s (%s)", tt.addr, got, tt.want, tt.why)
		}
	}
}

func TestAddressesWithoutAddress(t *testing.T) {
	l := NewAddresses(UnknownToken, Rate{1, time.Hour}, 0, nil, nil)
	for range 3 {
		if !l.Allow(netip.Addr{}).Allowed {
			t.Fatal("a caller on a Unix socket was limited")
		}
	}
}

// failures is a limiter with small limits, and what it has reported.
type failures struct {
	*Failures
	clock    clock
	reported map[string]int
}

func newFailures() *failures {
	f := &failures{reported: make(map[string]int)}
	f.Failures = NewFailures(FailuresConfig{
		PerClient: Rate{3, time.Minute}, PerAddress: Rate{5, time.Minute}, Now: f.clock.now,
		Observe: func(kind Kind, allowed bool) { f.reported[fmt.Sprint(kind, allowed)]++ },
	})
	return f
}

// exceeded returns the limit that err says was exceeded.
func exceeded(t *testing.T, err error) (Kind, time.Duration) {
	t.Helper()
	known, ok := errors.AsType[*ExceededError](err)
	if !ok {
		t.Fatalf("the error is %v, want an ExceededError", err)
	}
	return known.Kind, known.Decision.RetryAfter
}

func TestFailuresPerClient(t *testing.T) {
	f := newFailures()
	for i := range 3 {
		if err := f.Failed("worker", netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})); err != nil {
			t.Fatalf("failure %d: %v", i+1, err)
		}
	}
	kind, wait := exceeded(t, f.Failed("worker", netip.MustParseAddr("192.0.2.9")))
	if kind != FailedClient || wait != 20*time.Second {
		t.Errorf("refused by %s for %s, want %s for 20s", kind, wait, FailedClient)
	}
	if err := f.Failed("other", netip.MustParseAddr("192.0.2.9")); err != nil {
		t.Errorf("another client: %v", err)
	}
	f.clock.advance(wait)
	if err := f.Failed("worker", netip.MustParseAddr("192.0.2.9")); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	if f.reported["failed_auth_clientfalse"] != 1 || f.reported["failed_auth_clienttrue"] != 5 || f.reported["failed_auth_addresstrue"] != 6 {
		t.Errorf("reported %v", f.reported)
	}
}

func TestFailuresPerAddress(t *testing.T) {
	f := newFailures()
	for i := range 5 {
		addr := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)})
		if err := f.Failed(fmt.Sprint("invented", i), addr); err != nil {
			t.Fatalf("failure %d: %v", i+1, err)
		}
	}
	kind, wait := exceeded(t, f.Failed("invented", netip.MustParseAddr("2001:db8::ffff")))
	if kind != FailedAddress || wait != 12*time.Second {
		t.Errorf("refused by %s for %s, want %s for 12s", kind, wait, FailedAddress)
	}
}

// TestFailuresWithoutClient: requests that show no client id do not use up a
// limit that they would share.
func TestFailuresWithoutClient(t *testing.T) {
	f := newFailures()
	for i := range 100 {
		if err := f.Failed("", netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})); err != nil {
			t.Fatalf("failure %d: %v", i+1, err)
		}
	}
}

func TestFailuresOff(t *testing.T) {
	f := NewFailures(FailuresConfig{})
	for range 1000 {
		if err := f.Failed("worker", netip.MustParseAddr("192.0.2.1")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnknownTokens(t *testing.T) {
	var c clock
	var reported []string
	u := NewUnknownTokens(Rate{2, time.Second}, 0, c.now, func(kind Kind, allowed bool) {
		reported = append(reported, fmt.Sprint(kind, allowed))
	})
	addr, neighbour := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i, want := range []time.Duration{0, 0, 500 * time.Millisecond} {
		if wait, ok := u.Failed(addr); wait != want || ok != (want == 0) {
			t.Errorf("Failed() = %s, %t for unknown token %d, want a wait of %s", wait, ok, i+1, want)
		}
	}
	if _, ok := u.Failed(neighbour); !ok {
		t.Error("another address is over the rate")
	}
	c.advance(500 * time.Millisecond)
	if _, ok := u.Failed(addr); !ok {
		t.Error("over the rate after the wait")
	}
	if got := fmt.Sprint(reported); got != "[unknown_tokentrue unknown_tokentrue unknown_tokenfalse unknown_tokentrue unknown_tokentrue]" {
		t.Errorf("reported %s", got)
	}
}
