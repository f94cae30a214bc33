package docker

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// ownLinks returns the addresses of this machine's interfaces.
func ownLinks() ([]netip.Prefix, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var links []netip.Prefix
	for _, one := range found {
		if prefix, err := netip.ParsePrefix(one.String()); err == nil {
			links = append(links, netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()))
		}
	}
	return links, nil
}

// unsharedError is returned for a container that has no address which the gateway can reach.
type unsharedError struct {
	wanted    string // snowgate.network
	endpoints []endpoint
	links     []netip.Prefix
	names     map[netip.Prefix]string // of the gateway's networks, where known
}

// Error names the networks of the container and those of the gateway.
func (e *unsharedError) Error() string {
	var theirs, ours []string
	for _, at := range e.endpoints {
		theirs = append(theirs, at.network)
	}
	for _, link := range e.links {
		if usable(link.Addr()) == nil {
			ours = append(ours, strings.TrimSpace(e.names[link.Masked()]+" "+link.Masked().String()))
		}
	}
	text := "it has no network in common with the gateway"
	if e.wanted != "" {
		text = fmt.Sprintf("it is not on the network %q of snowgate.network, or the gateway is not", e.wanted)
	}
	return fmt.Sprintf("%s: the container is on %s, the gateway on %s", text, listed(theirs), listed(ours))
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// place chooses the network and the address of c. It uses the network that the labels of c name, or
// else the first one, by name, that the gateway is on as well. The gateway counts as being on a
// network if one of its interfaces has an address there. This works in a container and on the host,
// because the host has an interface on every bridge. place fails if no address is usable.
func (c *container) place(wanted string, p picture) (network string, address netip.Addr, err error) {
	shared := func(address netip.Prefix) bool {
		return slices.ContainsFunc(p.links, func(link netip.Prefix) bool { return link.Masked() == address.Masked() })
	}
	for _, at := range c.endpoints {
		if wanted != "" && !c.isNetwork(at.network, wanted) {
			continue
		}
		for _, one := range at.addresses {
			if !shared(one) {
				continue
			}
			if err = usable(one.Addr()); err == nil {
				return at.network, one.Addr(), nil
			}
		}
	}
	if err == nil {
		err = &unsharedError{wanted: wanted, endpoints: c.endpoints, links: p.links, names: p.networks}
	}
	return "", netip.Addr{}, err
}

// mayBePlaced reports whether c, which has no address now, would get one on a network of the
// gateway if c ran. It returns true while the names of the gateway's networks are unknown.
func (c *container) mayBePlaced(wanted string, p picture) bool {
	for _, at := range c.endpoints {
		if len(at.addresses) > 0 {
			return false // c has addresses, and they are elsewhere
		}
	}
	if len(p.networks) == 0 {
		return true
	}
	return slices.ContainsFunc(c.endpoints, func(at endpoint) bool {
		ours := slices.ContainsFunc(p.links, func(link netip.Prefix) bool { return p.networks[link.Masked()] == at.network })
		return ours && (wanted == "" || c.isNetwork(at.network, wanted))
	})
}

// isNetwork reports whether the network name is the one that the labels of c call wanted. Compose
// puts the name of the project before the network names of its files.
func (c *container) isNetwork(name, wanted string) bool {
	project := c.labels[composeProject]
	return name == wanted || project != "" && name == project+"_"+wanted
}

// usable refuses addresses that no container has. Otherwise, a caller that can make Docker report
// such an address could reach services on loopback, or a cloud's 169.254.169.254.
func usable(address netip.Addr) error {
	switch {
	case !address.IsValid() || address.IsUnspecified():
		return fmt.Errorf("it has no address")
	case address.IsLoopback(), address.IsLinkLocalUnicast(), address.IsMulticast(), address == broadcast:
		return fmt.Errorf("its address %s is loopback, link-local, multicast or broadcast", address)
	}
	return nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
