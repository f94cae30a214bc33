package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
)

// responseSize is the length of the upstream's response.
const responseSize = 94

// contestant is something a user could put in front of a service.
type contestant struct {
	name string
	// does says what it does for each request beside forwarding it.
	does  string
	http2 bool
	start func(context.Context, *site) (*target, error)
}

// target is a contestant that runs.
type target struct {
	url     string // what to ask for
	checks  bool   // whether it refuses requests without a good token
	bearers        // what it is asked with, whether it checks or not
	gateway []*process
	redis   []*process
}

// end ends all processes of the target, in order: a gateway that gives its worker
// number back leaves it to the next at once.
func (t *target) end() {
	for _, p := range t.gateway {
		p.stop()
	}
	for _, p := range t.redis {
		if p.giveBack != nil {
			p.giveBack()
			continue
		}
		p.kill()
	}
}

// verify checks that the contestant forwards a good request, and that it refuses
// one without a token if it is said to check.
func (t *target) verify(ctx context.Context) error {
	token := t.tokens[0]
	status, size, err := t.ask(ctx, http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		return err
	}
	if status != http.StatusOK || size != responseSize {
		return fmt.Errorf("GET %s = %d with %d bytes, want 200 with %d", t.url, status, size, responseSize)
	}
	if !t.checks {
		return nil
	}
	for _, header := range []http.Header{{}, {"Authorization": {"Bearer " + token[:len(token)-1] + "~"}}} {
		if status, _, err = t.ask(ctx, header); err != nil || status != http.StatusUnauthorized {
			return fmt.Errorf("GET %s without a good token = %d %w, want 401", t.url, status, err)
		}
	}
	return nil
}

func (t *target) ask(ctx context.Context, header http.Header) (status, size int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return 0, 0, err
	}
	request.Header = header
	response, err := client.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	return response.StatusCode, int(n), err
}

// Names of contestants that goals compare.
const (
	ours          = "snowgate"
	oursUncached  = "snowgate, cache off"
	oursBaseline  = "snowgate, baseline"
	bareProxy     = "bare ReverseProxy"
	floorProxy    = "floor of net/http"
	floorRedis    = "floor of net/http, one Redis read"
	nginxPlain    = "nginx"
	nginxLuaRedis = "nginx + Lua + Redis"
)

const fullWork = "token, scope, revocation rules, identity headers; access log, metrics"

// contestants lists all of them, in the order of the tables.
func contestants() []contestant {
	off := []string{"SNOWGATE_CACHE_TTL=0"}
	quiet := []string{"SNOWGATE_LOG_LEVEL=warn"}
	return []contestant{
		{ours, fullWork, false, snowgateTarget(setup{}, "/orders")},
		{"snowgate, access log off", "the same without access log", false, snowgateTarget(setup{env: quiet}, "/orders")},
		{oursUncached, "the same with access log, and one Redis read", false, snowgateTarget(setup{env: off}, "/orders")},
		{"snowgate, public route", "no token; header hygiene, access log, metrics", false, snowgateTarget(setup{}, "/open")},
		{bareProxy, "nothing", false, bareTarget},
		{floorProxy, "nothing, and knows no fault: see bench/floor", false, floorTarget},
		{floorRedis, "one Redis read as snowgate does it, and nothing else", false, floorRedisTarget},
		{nginxPlain, "access log", false, nginxTarget("http", "PORT")},
		{"HAProxy", "access log", false, haproxyTarget},
		{nginxLuaRedis, "token in Redis, scope, identity headers; access log", false, luaTarget},
		{"nginx auth_request → snowgate", "as snowgate; access log twice", false, authRequestTarget},
		{"Caddy", "access log", false, caddyTarget},
		{"Caddy forward_auth → snowgate", "as snowgate; access log twice", false, forwardAuthTarget},
		{"snowgate, TLS", "as snowgate, HTTP/1.1 over TLS", false, snowgateTarget(setup{tls: true}, "/orders")},
		{"nginx, TLS", "access log, HTTP/1.1 over TLS", false, nginxTarget("https", "TLS_PORT")},
		{"snowgate, HTTP/2", "as snowgate, HTTP/2 over TLS", true, snowgateTarget(setup{tls: true}, "/orders")},
		{"nginx, HTTP/2", "access log, HTTP/2 over TLS", true, nginxTarget("https", "TLS_PORT")},
	}
}

// named returns the contestant of that name, if there is one.
func named(name string) (c contestant, ok bool) {
	list := contestants()
	i := slices.IndexFunc(list, func(c contestant) bool { return c.name == name })
	if i < 0 {
		return contestant{}, false
	}
	return list[i], true
}

// baseline is another build of ours, to compare with.
func baseline(binary string) []contestant {
	return []contestant{
		{oursBaseline, fullWork, false, snowgateTarget(setup{binary: binary}, "/orders")},
		{oursBaseline + ", cache off", fullWork + ", one Redis read", false,
			snowgateTarget(setup{binary: binary, env: []string{"SNOWGATE_CACHE_TTL=0"}}, "/orders")},
	}
}

func snowgateTarget(o setup, path string) func(context.Context, *site) (*target, error) {
	return func(ctx context.Context, s *site) (*target, error) {
		g, err := s.startSnowgate(ctx, o)
		if err != nil {
			return nil, err
		}
		t := &target{url: g.url + path, gateway: []*process{g.process}, redis: []*process{g.redis}}
		t.checks = path != "/open"
		t.bearers, err = g.bearers(ctx, s)
		return t, err
	}
}

func bareTarget(ctx context.Context, s *site) (*target, error) {
	return s.launch(ctx, func(port int) (program, error) {
		return program{path: s.bare, args: []string{"-listen", address(port), "-upstream", "http://" + s.upstream}}, nil
	})
}

func floorTarget(ctx context.Context, s *site) (*target, error) { return s.launchFloor(ctx) }

// launchFloor starts the floor, with further arguments.
func (s *site) launchFloor(ctx context.Context, args ...string) (*target, error) {
	return s.launch(ctx, func(port int) (program, error) {
		return program{path: s.floor, args: append([]string{"-listen", address(port), "-upstream", s.upstream}, args...)}, nil
	})
}

// floorRedisTarget has the tokens issued by a snowgate, which leaves before anything is asked.
func floorRedisTarget(ctx context.Context, s *site) (*target, error) {
	g, err := s.startSnowgate(ctx, setup{})
	if err != nil {
		return nil, err
	}
	known, err := g.bearers(ctx, s)
	if err != nil {
		return nil, err
	}
	g.stop()
	t, err := s.launchFloor(ctx, "-redis", g.redisAt)
	if err != nil {
		return nil, err
	}
	t.bearers, t.redis = known, []*process{g.redis}
	return t, nil
}

func nginxTarget(scheme, portName string) func(context.Context, *site) (*target, error) {
	return func(ctx context.Context, s *site) (*target, error) {
		var at int
		t, err := s.launch(ctx, func(port int) (program, error) {
			other, err := freePort()
			if err != nil {
				return program{}, err
			}
			ports := map[string]string{"PORT": strconv.Itoa(port), "TLS_PORT": strconv.Itoa(other)}
			at, _ = strconv.Atoi(ports[portName])
			path, err := s.configure("nginx.conf", ports)
			return program{path: "nginx", args: []string{"-c", path}}, err
		})
		if err == nil {
			t.url = scheme + "://" + address(at) + "/orders"
		}
		return t, err
	}
}

func haproxyTarget(ctx context.Context, s *site) (*target, error) {
	return s.launch(ctx, func(port int) (program, error) {
		path, err := s.configure("haproxy.cfg", map[string]string{"PORT": strconv.Itoa(port)})
		return program{path: "haproxy", args: []string{"-db", "-f", path}}, err
	})
}

func caddyTarget(ctx context.Context, s *site) (*target, error) {
	return s.launch(ctx, func(port int) (program, error) {
		path, err := s.configure("Caddyfile", map[string]string{"PORT": strconv.Itoa(port)})
		return program{path: "caddy", args: []string{"run", "--adapter", "caddyfile", "--config", path}}, err
	})
}

// luaTarget puts tokens into a Redis of its own.
func luaTarget(ctx context.Context, s *site) (*target, error) {
	redis, at, err := s.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	_, redisPort, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	tokens := strangers() // as long and as random as tokens of ours
	if err := redisSet(ctx, at, "token:", tokens, "bench|orders.read orders.write"); err != nil {
		return nil, err
	}
	t, err := s.launch(ctx, func(port int) (program, error) {
		path, err := s.configure("nginx-lua.conf", map[string]string{"PORT": strconv.Itoa(port), "REDIS_PORT": redisPort})
		return program{path: "nginx", args: []string{"-c", path}}, err
	})
	if err != nil {
		return nil, err
	}
	t.checks, t.redis = true, []*process{redis}
	t.bearers, err = s.bearers(tokens)
	return t, err
}

func authRequestTarget(ctx context.Context, s *site) (*target, error) {
	return s.inFront(ctx, func(port int, snowgate string) (program, error) {
		path, err := s.configure("auth-request.conf", map[string]string{"PORT": strconv.Itoa(port), "SNOWGATE": snowgate})
		return program{path: "nginx", args: []string{"-c", path}}, err
	})
}

func forwardAuthTarget(ctx context.Context, s *site) (*target, error) {
	return s.inFront(ctx, func(port int, snowgate string) (program, error) {
		path, err := s.configure("Caddyfile.forward-auth", map[string]string{"PORT": strconv.Itoa(port), "SNOWGATE": snowgate})
		return program{path: "caddy", args: []string{"run", "--adapter", "caddyfile", "--config", path}}, err
	})
}

// inFront starts a proxy that asks a snowgate for verdicts. The processor time
// of both counts.
func (s *site) inFront(ctx context.Context, configure func(port int, snowgate string) (program, error)) (*target, error) {
	g, err := s.startSnowgate(ctx, setup{env: []string{"SNOWGATE_TRUSTED_PROXIES=127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	t, err := s.launch(ctx, func(port int) (program, error) { return configure(port, g.address) })
	if err != nil {
		return nil, err
	}
	t.gateway = append(t.gateway, g.process)
	t.checks, t.redis = true, []*process{g.redis}
	t.bearers, err = g.bearers(ctx, s)
	return t, err
}

// launch starts a program as a gateway and waits until it listens.
func (s *site) launch(ctx context.Context, configure func(port int) (program, error)) (*target, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	prog, err := configure(port)
	if err != nil {
		return nil, err
	}
	prog.core = gatewayCore
	prog.env = append(prog.env, "HOME="+s.dir)
	p, err := start(prog)
	if err != nil {
		return nil, err
	}
	s.running = append(s.running, p)
	known, err := s.bearers(strangers())
	if err != nil {
		return nil, err
	}
	return &target{url: "http://" + address(port) + "/orders", bearers: known, gateway: []*process{p}}, p.listening(ctx, address(port))
}
