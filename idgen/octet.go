package idgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Octet returns a source that uses the last octet of this host's IPv4 address as the worker number
// (system A), with a fixed datacenter number. See LocalIPv4 for towards. If the octet does not fit
// the worker field, Acquire fails.
//
// The source keeps no ceiling. Two hosts whose addresses end in the same octet, or two processes on
// one host, get the same number and issue the same ids. So Octet suits only networks of at most 254
// hosts with one process each.
func Octet(datacenter int64, towards string) Source {
	return octet{datacenter, func(ctx context.Context) (netip.Addr, error) { return LocalIPv4(ctx, towards) }}
}

type octet struct {
	datacenter int64
	address    func(context.Context) (netip.Addr, error)
}

func (o octet) Acquire(ctx context.Context, s Scheme, now int64) (Lease, error) {
	addr, err := o.address(ctx)
	if err != nil {
		return nil, err
	}
	n, err := LastOctet(addr)
	if err != nil {
		return nil, err
	}
	w := Worker{Datacenter: o.datacenter, Number: n}
	if err := s.layout.CheckWorker(w); err != nil {
		return nil, fmt.Errorf("idgen: last octet of %s: %w", addr, err)
	}
	return fixedLease{w, now}, nil
}

// LastOctet returns the last octet of an IPv4 address.
func LastOctet(addr netip.Addr) (int64, error) {
	addr = addr.Unmap()
	if !addr.Is4() {
		return 0, fmt.Errorf("%w: %q is not an IPv4 address; set SNOWGATE_WORKER_ID", ErrNoWorker, addr)
	}
	return int64(addr.As4()[3]), nil
}

// LocalIPv4 returns the IPv4 address of this host. That is the source address of packets to
// towards, a host:port that is resolved but not contacted. If towards is empty, cannot be resolved,
// or yields a loopback address, LocalIPv4 returns the first address that is neither loopback nor
// link-local. If there is none, the error wraps ErrNoWorker and names the setting to use instead.
func LocalIPv4(ctx context.Context, towards string) (netip.Addr, error) {
	if addr, ok := routeTo(ctx, towards); ok {
		return addr, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: list the addresses of this host: %w", ErrNoWorker, err)
	}
	return firstIPv4(addrs)
}

// routeTo returns the local address of a UDP socket connected to towards. Such a socket sends
// nothing.
func routeTo(ctx context.Context, towards string) (netip.Addr, bool) {
	if towards == "" {
		return netip.Addr{}, false
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp4", towards)
	if err != nil {
		return netip.Addr{}, false
	}
	defer func() { _ = conn.Close() }()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return usable(local.AddrPort().Addr())
}

func usable(addr netip.Addr) (netip.Addr, bool) {
	addr = addr.Unmap()
	return addr, addr.Is4() && addr.IsGlobalUnicast()
}

func firstIPv4(addrs []net.Addr) (netip.Addr, error) {
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		if addr, ok := usable(prefix.Addr()); ok {
			return addr, nil
		}
	}
	return netip.Addr{}, errors.Join(ErrNoWorker,
		errors.New("this host has no IPv4 address, so no last octet; set SNOWGATE_WORKER_ID to a number"))
}
