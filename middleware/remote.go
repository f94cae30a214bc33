package middleware

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"snowgate/internal/request/exchange"
)

// ConnContext is the ConnContext of an [http.Server]. It stores the peer in the context, so that
// [Observe] need not parse its address for every request.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	input, _ := c.(exchange.Input)
	inner := c
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		inner = secure.NetConn()
	}
	output, _ := inner.(exchange.Output)
	return &exchange.Connection{Context: ctx, Peer: peerAt(c.RemoteAddr().String()), Input: input, Output: output}
}

// peerOf returns the peer of c. If c is nil, it parses the address of r.
func peerOf(c *exchange.Connection, r *http.Request) *exchange.Peer {
	if c != nil {
		return &c.Peer
	}
	peer := peerAt(r.RemoteAddr)
	return &peer
}

// peerAt returns the peer at address, which has a port.
func peerAt(address string) exchange.Peer {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return exchange.Peer{}
	}
	addr := at.Addr().Unmap()
	return exchange.Peer{Addr: addr, Text: addr.String()}
}

// remote returns the address of the caller of r: the peer, or, if the peer is a trusted proxy, the
// address that X-Forwarded-For names. Every proxy appends the address that it was called from, so
// the header is read from the right, over the addresses that are trusted proxies themselves, up to
// the first that is not; whatever is left of it, anybody may have written. If all are trusted, the
// request began at the leftmost. If a trusted proxy has appended anything but an address, remote
// returns the peer.
func remote(r *http.Request, proxies []netip.Prefix, peer netip.Addr, trusted bool) netip.Addr {
	if !trusted {
		return peer
	}
	caller := peer
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var entry string
			rest, entry, more = cutLast(rest)
			address, ok := parseForwarded(entry)
			if !ok {
				return peer
			}
			caller = address
			if !isTrusted(proxies, caller) {
				return caller
			}
		}
	}
	return caller
}

// cutLast splits a list at its last comma. more reports whether there is one.
func cutLast(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// parseForwarded reads one entry of X-Forwarded-For: an address, in brackets or not, with a port or
// not. No standard defines the entry; these are the forms that proxies write.
func parseForwarded(entry string) (netip.Addr, bool) {
	entry = strings.Trim(entry, " \t")
	if address, err := netip.ParseAddr(entry); err == nil {
		return address.Unmap().WithZone(""), true
	}
	if pair, err := netip.ParseAddrPort(entry); err == nil {
		return pair.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(entry, "["); ok && strings.HasSuffix(inner, "]") {
		address, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return address.Unmap().WithZone(""), err == nil && address.Is6()
	}
	return netip.Addr{}, false
}
