package docker

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"snowgate/integration/lineartest"
)

// TestLinear: reading Docker's lists takes time linear in their size. The limiting readers are also
// given small reads.
func TestLinear(t *testing.T) {
	list := func(text string) {
		_, _ = io.Copy(io.Discard, BoundList(io.NopCloser(strings.NewReader(text))))
	}
	events := func(text string) {
		_, _ = io.Copy(io.Discard, BoundEvents(io.NopCloser(strings.NewReader(text))))
	}
	bitwise := func(text string) {
		var b [1]byte
		bound := BoundList(io.NopCloser(bytes.NewReader([]byte(text))))
		for range len(text) {
			_, _ = bound.Read(b[:])
		}
	}
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("BoundList, elements", "[{}", ",{}", "]", list),
		lineartest.Strings("BoundList, nested", "", "[", "", list),
		lineartest.Strings("BoundList, a text", `["`, `\"`, `"]`, list),
		lineartest.Strings("BoundList, byte by byte", "[{}", `,"a"`, "]", bitwise),
		lineartest.Strings("BoundEvents", "", `{"a":1}`+"\n", "", events),
		lineartest.Strings("BoundEvents, a text", `{"a":"`, `a`, `"}`, events),
		lineartest.Strings("LooksAt", "snowgate", ".a", "", func(text string) { lineartest.Keep(LooksAt(text)) }),
		lineartest.Strings("healthOf", "Up ", "(healthy)", "", func(text string) { lineartest.Keep(healthOf(text) == "") }),
		{Name: "assemble, services", Size: 250, Prepare: assembling(func(i int, c *container) {
			c.labels[composeService], c.labels["path"] = fmt.Sprint("s", i), fmt.Sprint("/", i)
		})},
		{Name: "assemble, services of one name", Size: 250, Prepare: assembling(func(i int, c *container) {
			c.labels[composeProject] = fmt.Sprint("p", i)
		})},
		{Name: "assemble, replicas", Size: 250, Prepare: assembling(func(int, *container) {})},
		{Name: "assemble, replicas that say different things", Size: 250, Prepare: assembling(func(i int, c *container) {
			c.labels["path"], c.labels[nameLabel] = fmt.Sprint("/", i), fmt.Sprint("n", i)
		})},
		{Name: "assemble, faulty labels", Size: 250, Prepare: assembling(func(_ int, c *container) { c.labels["bad"] = "1" })},
		{Name: "assemble, on networks of others", Size: 250, Prepare: assembling(func(i int, c *container) {
			c.endpoints = []endpoint{{network: fmt.Sprint("n", i), addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}}}
		})},
		{Name: "assemble, ports", Size: 1000, Prepare: func(size int) func() {
			return assembling(func(_ int, c *container) {
				c.ports = nil
				for i := range size {
					c.ports = append(c.ports, uint16(i))
				}
			})(1)
		}},
		{Name: "assemble, networks", Size: 1000, Prepare: func(size int) func() {
			return assembling(func(_ int, c *container) {
				c.endpoints = nil
				for i := range size {
					c.endpoints = append(c.endpoints, endpoint{network: fmt.Sprint("n", i), addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}})
				}
			})(1)
		}},
		{Name: "assemble, labels", Size: 1000, Prepare: func(size int) func() {
			return assembling(func(_ int, c *container) {
				for i := range size {
					c.labels[fmt.Sprint(labelPrefix, "x", i)] = "y"
				}
			})(2)
		}},
	})
}

// assembling returns a function that prepares the assembly of size containers, each changed by
// change. The assembler knows none of them.
func assembling(change func(i int, c *container)) func(size int) func() {
	return func(size int) func() {
		p := picture{links: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/16")}, networks: map[netip.Prefix]string{}}
		for i := range size {
			c := container{
				id: fmt.Sprintf("%012d", i), name: fmt.Sprint("c", i), created: int64(i), state: "running", ports: []uint16{8080},
				labels:    map[string]string{EnableLabel: "true", composeProject: "shop", composeService: "a", composeNumber: "1", "path": "/a"},
				endpoints: []endpoint{{network: "shop_net", addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 16)}}},
			}
			change(i, &c)
			p.containers = append(p.containers, c)
		}
		return func() {
			a := &assembler{read: read}
			a.assemble(p, func(string) string { return "" })
		}
	}
}
