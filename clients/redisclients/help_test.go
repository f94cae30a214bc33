package redisclients

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/clients"
	"snowgate/limit"
	"snowgate/tokens/redisstore/embedded"
	"snowgate/tokens/tokenstest/redistest"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// onAll are the tests that run on every kind of Redis.
var onAll = []struct {
	name string
	test func(t *testing.T, rdb redis.UniversalClient)
}{
	{"LifeOfAClient", testLifeOfAClient},
	{"Refusals", testRefusals},
	{"ConcurrentCreates", testConcurrentCreates},
	{"ConcurrentChanges", testConcurrentChanges},
	{"LastUsed", testLastUsed},
	{"Wiped", testWiped},
	{"PartsLost", testPartsLost},
	{"RolledBack", testRolledBack},
	{"DeletionIsNotTheLastWord", testDeletionIsNotTheLastWord},
	{"RestoreOfTheOld", testRestoreOfTheOld},
	{"DamagedDocument", testDamagedDocument},
	{"NewerMembers", testNewerMembers},
	{"ManyClients", testManyClients},
}

func runAll(t *testing.T, rdb redis.UniversalClient) {
	for _, tt := range onAll {
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		t.Run(tt.name, func(t *testing.T) { tt.test(t, rdb) })
	}
}

func TestOnRedis(t *testing.T) {
	t.Parallel()
	runAll(t, connect(t, redistest.Start(t).URL()))
}

func TestOnEmbedded(t *testing.T) {
	t.Parallel()
	runAll(t, connect(t, startEmbedded(t)))
}

func TestOnCluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	server.Eventually("form a cluster", func() bool {
		return strings.Contains(server.Do("CLUSTER", "INFO"), "cluster_state:ok")
	})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{server.Addr()}, Password: server.Password(), ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	runAll(t, rdb)
}

func startEmbedded(t testing.TB) string {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server.URL()
}

func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled, o.DialerRetries, o.MaxRetries = true, 1, 1
	o.MinRetryBackoff, o.MaxRetryBackoff = -1, -1
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// gateway is one gateway's view of the clients.
type gateway struct {
	*Store
	registry *clients.Registry

	mu      sync.Mutex
	reports []error
}

func newGateway(rdb redis.UniversalClient) *gateway {
	g := &gateway{registry: clients.NewRegistry(time.Hour)}
	g.registry.Follow(func() bool { return true }, nil)
	g.Store = New(rdb, g.registry, Options{
		Timeout: 10 * time.Second, // long, because a busy machine must not fail these tests
		MaxTTL:  time.Hour,
		Now:     func() time.Time { return noon },
		Report: func(err error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.reports = append(g.reports, err)
		},
	})
	return g
}

func (g *gateway) refresh(t testing.TB, full bool) {
	t.Helper()
	read := g.Poll
	if full {
		read = g.Refresh
	}
	if err := read(t.Context()); err != nil {
		t.Fatalf("reading the clients = %v", err)
	}
}

// ids returns the clients of the store that the gateway knows, in order.
func (g *gateway) ids() string {
	page, _ := g.registry.Page("", 1_000_000, nil)
	var ids []string
	for _, c := range page {
		ids = append(ids, c.ID)
	}
	return strings.Join(ids, " ")
}

func document(id string) clients.Document {
	return clients.Document{
		ID: id, Name: "Orders & more", Scopes: "a b", Audiences: []string{"https://x?a=1&b=2"},
		TokenTTL: time.Minute, Rate: limit.Rate{Count: 5, Per: time.Second}, Introspect: clients.IntrospectAudience,
	}
}

func issue() clients.Credential {
	_, credential := clients.Issue("", noon, time.Time{})
	return credential
}

func create(t testing.TB, g *gateway, id string) *clients.Client {
	t.Helper()
	change, err := g.Create(t.Context(), document(id), issue())
	if err != nil {
		t.Fatalf("Create(%s) = %v", id, err)
	}
	return change.After
}

// wire cuts the connections of a pool before or after a script.
type wire struct {
	mu      sync.Mutex
	scripts int             // sent so far
	cut     func(n int) cut // asked for the n-th script from 1
}

type cut int

const (
	intact    cut = iota
	cutBefore     // the script does not reach Redis
	cutAfter      // its response is lost
)

// cutting returns a pool whose connections w cuts.
func cutting(t testing.TB, url string, w *wire) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = true, 1, -1, -1
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, wire: w}, nil
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

type cutConn struct {
	net.Conn
	wire *wire
	dead bool // once the response to the last command was read
}

func (c *cutConn) Write(b []byte) (int, error) {
	if !bytes.Contains(bytes.ToLower(b), []byte("\r\neval")) {
		return c.Conn.Write(b)
	}
	c.wire.mu.Lock()
	c.wire.scripts++
	what := intact
	if c.wire.cut != nil {
		what = c.wire.cut(c.wire.scripts)
	}
	c.wire.mu.Unlock()
	switch what {
	case cutBefore:
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	case cutAfter:
		c.dead = true
	case intact:
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.dead && err == nil {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}
