package idgen

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	t.Setenv("TEST_MACHINE", "7")
	t.Setenv("TEST_PROCESS", "31")
	t.Setenv("TEST_WRONG", "seven")
	s := testScheme(t, LayoutD)
	tests := []struct {
		datacenter, worker string
		want               Worker
		err                error
	}{
		{"TEST_MACHINE", "TEST_PROCESS", Worker{7, 31}, nil},
		{"", "TEST_PROCESS", Worker{0, 31}, nil},
		{"TEST_PROCESS", "TEST_MACHINE", Worker{}, ErrFieldRange}, // 31 in 3 bits
		{"TEST_MACHINE", "TEST_UNSET", Worker{}, ErrNoWorker},
		{"TEST_UNSET", "TEST_PROCESS", Worker{}, ErrNoWorker},
		{"TEST_MACHINE", "TEST_WRONG", Worker{}, ErrNoWorker},
	}
	for _, test := range tests {
		l, err := Environment(test.datacenter, test.worker).Acquire(t.Context(), s, 10)
		if !errors.Is(err, test.err) {
			t.Errorf("Environment(%q, %q): %v, want %v", test.datacenter, test.worker, err, test.err)
		}
		if err == nil && (l.Worker() != test.want || l.Floor() != 10 || l.Ceiling() != NoCeiling) {
			t.Errorf("Environment(%q, %q) = %+v, want %+v from 10 on", test.datacenter, test.worker, l, test.want)
		}
	}
	_, err := Environment("TEST_UNSET", "TEST_WRONG").Acquire(t.Context(), s, 0)
	for _, name := range []string{"TEST_UNSET", "TEST_WRONG"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q does not name %s", err, name)
		}
	}
}

func TestLastOctet(t *testing.T) {
	for text, want := range map[string]int64{"172.17.0.2": 2, "10.1.2.255": 255, "::ffff:10.0.0.9": 9} {
		if got, err := LastOctet(netip.MustParseAddr(text)); got != want || err != nil {
			t.Errorf("LastOctet(%s) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("fd00::1")} {
		if got, err := LastOctet(addr); !errors.Is(err, ErrNoWorker) {
			t.Errorf("LastOctet(%v) = %d, %v, want ErrNoWorker", addr, got, err)
		}
	}
}

func TestFirstIPv4(t *testing.T) {
	network := func(text string) net.Addr {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		return &net.IPNet{IP: ip, Mask: n.Mask}
	}
	host := []net.Addr{
		network("127.0.0.1/8"), network("127.0.1.1/8"), // what hosts files say
		network("::1/128"), network("fe80::1/64"),
		network("169.254.7.7/16"), // self-assigned
		network("fd00::2/64"),
		network("100.64.10.3/10"), // as good as any
		network("10.0.0.9/8"),
	}
	if got, err := firstIPv4(host); got.String() != "100.64.10.3" || err != nil {
		t.Errorf("firstIPv4 = %v, %v, want 100.64.10.3", got, err)
	}
	_, err := firstIPv4(host[:6])
	if !errors.Is(err, ErrNoWorker) || !strings.Contains(err.Error(), "SNOWGATE_WORKER_ID") {
		t.Errorf("firstIPv4 of an IPv6 host: %v, want ErrNoWorker that names the setting", err)
	}
}

func TestRouteTo(t *testing.T) {
	ctx := context.Background()
	// A route to loopback says nothing about the address of this host.
	for _, towards := range []string{"", "no port", "127.0.0.1:6379"} {
		if addr, ok := routeTo(ctx, towards); ok {
			t.Errorf("routeTo(%q) = %v, want none", towards, addr)
		}
	}
}
