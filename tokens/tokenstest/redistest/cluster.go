package redistest

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// Cluster is a Redis Cluster of primaries, to which replicas can be added. Its methods fail the
// test on any error. A Cluster and its nodes are not safe for concurrent use.
type Cluster struct {
	Nodes []*Server // the first primaries

	t         testing.TB
	arguments []string   // of every node
	ids       []string   // of Nodes
	owner     [slots]int // index in Nodes
	replicas  int
}

// StartCluster starts a cluster of that many nodes on random ports of 127.0.0.1, all with the same
// password, and assigns the slots to them in equal ranges. It takes a little over two seconds,
// because the nodes of a new cluster refuse commands for so long. The cluster ends with the test.
//
// A node counts as failed after a second. If more than half of all nodes are left, they go on
// serving their own slots. The further arguments are passed to each node and override the defaults,
// for instance "--cluster-require-full-coverage", "yes".
//
// Without redis-server in PATH the test is skipped, as by Start.
func StartCluster(t testing.TB, nodes int, arguments ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, arguments: append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
		"--cluster-require-full-coverage", "no", "--appendonly", "no",
	}, arguments...)}
	password := rand.Text()
	for range nodes {
		s := configure(t, password, c.arguments...)
		s.LaunchOnly()
		c.Nodes = append(c.Nodes, s)
	}
	for i, s := range c.Nodes {
		s.WaitReady()
		c.ids = append(c.ids, s.Do("CLUSTER", "MYID"))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)) // so that the nodes need not agree on one
		c.give(i, i*slots/nodes, (i+1)*slots/nodes-1)
		if i > 0 {
			_, port, _ := net.SplitHostPort(s.Addr())
			c.Nodes[0].Do("CLUSTER", "MEET", "127.0.0.1", port, s.bus)
		}
	}
	c.WaitReady()
	return c
}

// AddReplica starts a replica of one of Nodes, and waits until it has caught up and every node of the
// cluster knows of it. When its primary fails, the cluster promotes it.
func (c *Cluster) AddReplica(of *Server) *Server {
	c.t.Helper()
	s := configure(c.t, of.password, c.arguments...)
	s.launch()
	_, port, _ := net.SplitHostPort(s.Addr())
	of.Do("CLUSTER", "MEET", "127.0.0.1", port, s.bus)
	c.replicas++
	primary := c.ids[c.index(of)]
	s.Eventually("follow its primary", func() bool {
		_, err := s.TryDo("CLUSTER", "REPLICATE", primary)
		return err == nil && strings.Contains(s.Do("INFO", "replication"), "master_link_status:up")
	})
	c.WaitReady()
	for _, node := range c.Nodes {
		node.Eventually("know the replica", func() bool {
			return strings.Contains(node.Do("CLUSTER", "NODES"), "slave "+primary)
		})
	}
	return s
}

func (c *Cluster) give(node, first, last int) {
	c.t.Helper()
	c.Nodes[node].Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
	for slot := first; slot <= last; slot++ {
		c.owner[slot] = node
	}
}

// WaitReady returns when every node accepts commands and knows the owners of all slots.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	for _, s := range c.Nodes {
		s.Eventually("see a whole cluster", func() bool {
			info, err := s.TryDo("CLUSTER", "INFO")
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", slots)) &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes)+c.replicas))
		})
	}
}

// URL returns redis+cluster://:password@host:port?addr=host:port… with all nodes.
func (c *Cluster) URL() string {
	first := c.Nodes[0]
	others := url.Values{}
	for _, s := range c.Nodes[1:] {
		others.Add("addr", s.Addr())
	}
	return (&url.URL{
		Scheme: "redis+cluster", User: url.UserPassword("", first.password), Host: first.Addr(), RawQuery: others.Encode(),
	}).String()
}

// Addrs returns host:port of every node.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Password returns the password of every node.
func (c *Cluster) Password() string { return c.Nodes[0].password }

// Owner returns the node that holds key.
func (c *Cluster) Owner(key string) *Server { return c.Nodes[c.owner[Slot(key)]] }

// Other returns a node that is not s.
func (c *Cluster) Other(s *Server) *Server {
	for _, other := range c.Nodes {
		if other != s {
			return other
		}
	}
	c.t.Fatal("the cluster has no other node")
	return nil
}

// Move makes node to the owner of the slot of key while the cluster runs, like redis-cli --cluster
// reshard. It calls the during functions when half of the keys of the slot have moved.
func (c *Cluster) Move(key string, to *Server, during ...func()) {
	c.t.Helper()
	slot, from := Slot(key), c.Owner(key)
	if from == to {
		return
	}
	target, source := c.index(to), c.index(from)
	number := strconv.Itoa(slot)
	to.Do("CLUSTER", "SETSLOT", number, "IMPORTING", c.ids[source])
	from.Do("CLUSTER", "SETSLOT", number, "MIGRATING", c.ids[target])
	keys, _ := strconv.Atoi(from.Do("CLUSTER", "COUNTKEYSINSLOT", number))
	c.migrate(from, to, number, (keys+1)/2)
	for _, f := range during {
		f()
	}
	for c.migrate(from, to, number, 10) {
	}
	c.owner[slot] = target
	// Inform the new owner first, so that the slot always has an owner.
	to.Do("CLUSTER", "SETSLOT", number, "NODE", c.ids[target])
	for _, s := range c.Nodes {
		if !s.frozen && s.Running() {
			s.Do("CLUSTER", "SETSLOT", number, "NODE", c.ids[target])
		}
	}
}

// migrate moves up to n keys of the slot, and reports whether there were any.
func (c *Cluster) migrate(from, to *Server, slot string, n int) bool {
	c.t.Helper()
	keys := from.Do("CLUSTER", "GETKEYSINSLOT", slot, strconv.Itoa(n))
	if keys == "" {
		return false
	}
	host, port, _ := net.SplitHostPort(to.Addr())
	command := []string{"MIGRATE", host, port, "", "0", "5000", "AUTH", to.password, "KEYS"}
	from.Do(append(command, strings.Split(keys, "\n")...)...)
	return true
}

func (c *Cluster) index(s *Server) int {
	c.t.Helper()
	for i, node := range c.Nodes {
		if node == s {
			return i
		}
	}
	c.t.Fatalf("the server on %s is not of this cluster", s.Addr())
	return -1
}

// Slot returns the slot of key: the CRC-16 (XMODEM) of its hash tag, or of all of
// it if it has none.
func Slot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return int(crc) % slots
}
