package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/proxy/docker/dockertest"
)

// discoverySoon bounds what takes a fraction of a second by itself.
const discoverySoon = 15 * time.Second

// ownAddress returns an address of this machine that a container could have, too.
func ownAddress(t *testing.T) netip.Prefix {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		p, err := netip.ParsePrefix(address.String())
		if err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return p
		}
	}
	t.Skip("this machine has no address but loopback")
	return netip.Prefix{}
}

// dockerSite is a gateway with a Docker API, and the services of its containers.
type dockerSite struct {
	*gatewaytest.Gateway
	t      *testing.T
	docker *dockertest.Server
	at     netip.Prefix
	token  string
}

// newDockerSite starts a gateway that discovers. Its file has a route at /file.
func newDockerSite(t *testing.T, docker *dockertest.Server, env ...string) *dockerSite {
	t.Helper()
	s := &dockerSite{t: t, docker: docker, at: ownAddress(t)}
	admin := administrator()
	s.Gateway = gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + fileClient.YAML + "routes: [{name: file, path: /file, upstreams: [" + s.service("file") + "], public: true}]\n",
		Env:    append([]string{"SNOWGATE_DOCKER_HOST=" + docker.Host, "SNOWGATE_ADMIN_CLIENT_SECRET=" + admin.Secret}, env...),
	})
	s.token = s.Token(fileClient)
	return s
}

// service starts a service that says text, and returns its URL.
func (s *dockerSite) service(text string) string {
	s.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(s.at.Addr().String(), "0"))
	if err != nil {
		s.t.Fatal(err)
	}
	server := cuttest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	server.Listener = listener
	server.Start()
	s.t.Cleanup(server.Close)
	return server.URL
}

// container is one with a service that says its name. labels are pairs without prefix.
func (s *dockerSite) container(id string, labels ...string) dockertest.Container {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.service(id), "http://"))
	c := dockertest.Container{
		ID: id, Name: "shop-" + id, Created: 1, Address: s.at.Addr().String(), Bits: s.at.Bits(),
		Labels: map[string]string{"snowgate.enable": "true", "snowgate.port": port, "com.docker.compose.project": "shop", "com.docker.compose.service": "svc", "com.docker.compose.container-number": "1"},
	}
	for i := 0; i < len(labels); i += 2 {
		c.Labels["snowgate."+labels[i]] = labels[i+1]
	}
	return c
}

// becomes waits until GET path with a token is answered with want, status and body.
func (s *dockerSite) becomes(path, want string) {
	s.t.Helper()
	var got string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("GET %s = %s", path, got)
		}
	}()
	gatewaytest.Eventually(s.t, discoverySoon, "GET "+path+" = "+want, func() bool {
		r := s.Get(path, s.token)
		got = strconv.Itoa(r.StatusCode)
		if r.StatusCode == http.StatusOK {
			got += " " + r.Body
		}
		if r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") == "" {
			got += " without Retry-After"
		}
		return got == want
	})
}

// TestDiscovery is the life of a service in a container.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	docker := dockertest.Start(t, "unix")
	s := newDockerSite(t, docker)
	s.becomes("/a", "404")
	one := s.container("one", "path", "/a", "scopes", "orders.read", "strip_prefix", "true")
	docker.Set(one)
	docker.Event("start", "one")
	s.becomes("/a", "200 one")
	if got := s.Get("/a", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want 401", got.StatusCode)
	}

	ill := one
	ill.Status = "Up 1 minute (unhealthy)"
	docker.Set(ill)
	docker.Event("health_status: unhealthy", "one")
	s.becomes("/a", "503")
	docker.Set(one)
	docker.Event("health_status: healthy", "one")
	s.becomes("/a", "200 one")

	// Docker goes away; what is known stays, also over a reload of the file.
	docker.Stop()
	s.WaitLog("Docker cannot be reached: the routes discovered so far stay")
	s.Signal(syscall.SIGHUP)
	s.WaitLog("the configuration file was read again")
	s.becomes("/a", "200 one")
	if m := s.Metrics(); m.Sum("snowgate_discovery_up") != 0 || m.Sum("snowgate_discovery_containers", `state="serving"`) != 1 {
		t.Errorf("while Docker is away: up %v, containers %v", m.Sum("snowgate_discovery_up"), m.Sum("snowgate_discovery_containers"))
	}
	two := s.container("two", "path", "/a", "scopes", "orders.read", "strip_prefix", "true")
	docker.Set(two)
	docker.Restart()
	s.becomes("/a", "200 two")
	if up := s.Metrics().Sum("snowgate_discovery_up"); up != 1 {
		t.Errorf("Docker is back: up is %v", up)
	}

	docker.Set()
	docker.Event("destroy", "two")
	s.becomes("/a", "404")
	s.becomes("/file", "200 file")
}

// TestLabelsThatAreRefused: none of them hurts the others, and each is told.
func TestLabelsThatAreRefused(t *testing.T) {
	t.Parallel()
	docker := dockertest.Start(t, "tcp")
	docker.AddNetwork("lan", ownAddress(t).Masked().String())
	s := newDockerSite(t, docker)
	good := s.container("good", "path", "/good")
	faulty := map[string]string{
		"own":      "belongs to the gateway itself, which answers /oauth2",
		"ready":    "belongs to the gateway itself, which answers /readyz",
		"open":     "snowgate.public: a label may make a route public only if the gateway has SNOWGATE_DOCKER_ALLOW_PUBLIC=true",
		"token":    "only if the gateway has SNOWGATE_DOCKER_ALLOW_PASS_TOKEN=true",
		"port":     "is not a number from 1 to 65535",
		"upstream": "a label cannot name another",
		"large":    "the value has 1048576 bytes; 8192 are allowed",
		"typo":     "did you mean path?",
		"loop":     "loopback, link-local",
		"metadata": "it has no network in common with the gateway",
	}
	list := []dockertest.Container{
		good,
		s.container("own", "path", "/oauth2/token"),
		s.container("ready", "path", "/readyz"),
		s.container("open", "path", "/open", "public", "true"),
		s.container("port", "path", "/port", "port", "70000"),
		s.container("upstream", "path", "/upstream", "upstreams", "http://169.254.169.254"),
		s.container("large", "path", strings.Repeat("x", 1<<20)),
		s.container("typo", "pathh", "/typo"),
		s.container("loop", "path", "/loop"),
		s.container("metadata", "path", "/metadata"),
		s.container("thief", "path", "/good"), // another owner's
		s.container("robber", "path", "/file"),
		s.container("deeper", "path", "/file/admin"),
		s.container("hosted", "path", "/", "host", "127.0.0.1"),
		s.container("token", "path", "/token", "pass_token", "true"),
	}
	list[8].Address, list[8].Bits = "127.0.0.1", 8
	list[9].Address, list[9].Bits = "169.254.169.254", 16
	for i := range list {
		list[i].Created += int64(i)
		list[i].Labels["com.docker.compose.service"] = list[i].ID
	}
	docker.Set(list...)
	docker.Event("start", "good")
	s.becomes("/good", "200 good")
	s.becomes("/file", "200 file")
	for _, path := range []string{"/open", "/port", "/upstream", "/typo", "/loop", "/metadata"} {
		s.becomes(path, "404")
	}
	if got := s.Get("/readyz", ""); got.StatusCode != http.StatusOK || !strings.Contains(got.Body, "ready") {
		t.Errorf("GET /readyz = %d %s", got.StatusCode, got.Body)
	}
	reasons := map[string]string{}
	for _, line := range s.Lines("a container is not taken into a route") {
		reasons[strings.TrimPrefix(line["container"].(string), "shop-")] = line["reason"].(string)
	}
	for name, want := range faulty {
		if got := reasons[name]; !strings.Contains(got, want) || len(got) > 1000 {
			t.Errorf("container %s: the log says %q, want %q", name, got, want)
		}
	}
	var refused []string
	for _, line := range s.Lines("a discovered route is not in force") {
		refused = append(refused, line["reason"].(string))
	}
	for _, want := range []string{
		`route "thief" of shop/thief: it would take requests for host "" and path "/good" from route "good" of shop/good`,
		`route "robber" of shop/robber: it would take requests for host "" and path "/file" from route "file" of the file`,
		`route "deeper" of shop/deeper: it would take requests for host "" and path "/file/admin" from route "file" of the file`,
		`route "hosted" of shop/hosted: it would take requests for host "127.0.0.1" and path "/" from route "file" of the file`,
	} {
		if !strings.Contains(fmt.Sprint(refused), want) {
			t.Errorf("the log says %q, want %s", refused, want)
		}
	}
	s.checkRoutesOfAdmin(len(list))
}

// checkRoutesOfAdmin looks at what the admin API tells.
func (s *dockerSite) checkRoutesOfAdmin(containers int) {
	s.t.Helper()
	m := s.Metrics()
	if m.Sum("snowgate_discovery_containers") != float64(containers) || m.Sum("snowgate_discovery_refused_routes") != 4 || m.Sum("snowgate_discovery_up") != 1 {
		s.t.Errorf("the metrics count %v containers and %v refused routes, want %d and 4",
			m.Sum("snowgate_discovery_containers"), m.Sum("snowgate_discovery_refused_routes"), containers)
	}
}

func TestPublicByTheOperatorsSwitch(t *testing.T) {
	t.Parallel()
	docker := dockertest.Start(t, "unix")
	s := newDockerSite(t, docker, "SNOWGATE_DOCKER_ALLOW_PUBLIC=true")
	docker.Set(s.container("open", "path", "/open", "public", "true"))
	docker.Event("start", "open")
	s.becomes("/open", "200 open")
	if got := s.Get("/open", ""); got.StatusCode != http.StatusOK {
		t.Errorf("without a token: %d, want 200", got.StatusCode)
	}
}

// TestReadinessWaitsForTheFirstList: a gateway that has just started does not say 404
// to what it has not discovered yet; but it does not wait for a dead Docker for ever.
func TestReadinessWaitsForTheFirstList(t *testing.T) {
	t.Parallel()
	docker := dockertest.Start(t, "tcp")
	docker.SetFault(dockertest.Hang)
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients: []\n", NotReady: true, Env: []string{"SNOWGATE_DOCKER_HOST=" + docker.Host}})
	var got gatewaytest.Response
	gatewaytest.Eventually(t, discoverySoon, "all but Docker is there", func() bool {
		got = g.Get("/readyz", "")
		return strings.Contains(got.Body, `"missing":["routes from Docker"]`)
	})
	if got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("before the first list: %d %s, want 503", got.StatusCode, got.Body)
	}
	docker.SetFault(dockertest.None)
	docker.CutEvents() // what hangs
	g.WaitLog("ready: tokens are checked and issued")
}

// TestDockerProxyCommand discovers through the real command.
func TestDockerProxyCommand(t *testing.T) {
	t.Parallel()
	docker := dockertest.Start(t, "unix")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	var stderr bytes.Buffer
	command := exec.Command(gatewaytest.Binary(t), "docker-proxy", "-listen", address, "-socket", docker.Socket)
	command.Stderr = &stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- command.Wait() }()
	t.Cleanup(func() { _ = command.Process.Kill() })
	gatewaytest.Eventually(t, discoverySoon, "the proxy listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	docker.Host = "tcp://" + address
	s := newDockerSite(t, docker)
	docker.Set(s.container("one", "path", "/a"))
	docker.Event("start", "one")
	s.becomes("/a", "200 one")
	for _, request := range []string{"POST /v1.41/containers/create", "GET /v1.41/containers/one/json", "GET /v1.41/images/json", "DELETE /networks"} {
		method, path, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := gatewaytest.Do(r)
		if err != nil || got.StatusCode != http.StatusForbidden || got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s = %d %v, want a problem 403", request, got.StatusCode, err)
		}
	}
	for _, request := range docker.Requests() {
		if request != "GET /_ping" && request != "GET /containers/json" && request != "GET /networks" && request != "GET /events" {
			t.Errorf("Docker was asked %s", request)
		}
	}
	// It ends although the gateway listens to events.
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Errorf("the end: %v\n%s", err, stderr.String())
		}
	case <-time.After(discoverySoon):
		t.Error("the proxy does not end")
	}
	s.becomes("/a", "200 one")
}
