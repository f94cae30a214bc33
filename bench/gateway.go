package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"snowgate/clients"
)

// clientID is the client that gets tokens.
const clientID = "orders"

// setup says how snowgate is started.
type setup struct {
	binary string   // empty: the one under test
	env    []string // further variables
	config string   // the whole configuration file; empty: conf/snowgate.yaml
	tls    bool     // HTTP/2 and HTTP/1.1 over TLS
	secret string   // of clientID, when config is given
	redis  *process // nil: one of its own
	at     string   // address of redis
}

// gateway is a running snowgate.
type gateway struct {
	*process
	address string // host:port of the public listener
	admin   string // host:port of the admin listener
	url     string // scheme and address
	secret  string // of clientID
	redis   *process
	redisAt string // host:port
}

// startRedis starts a Redis that keeps everything in memory.
func (s *site) startRedis(ctx context.Context) (p *process, at string, err error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	p, err = start(program{path: "redis-server", core: loadCore, args: []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir,
	}})
	if err != nil {
		return nil, "", err
	}
	s.running = append(s.running, p)
	at = address(port)
	err = p.listening(ctx, at)
	return p, at, err
}

// usedRedis returns a Redis that gateways have used before, if one is free: in
// a new one, worker numbers are given out after four seconds only.
func (s *site) usedRedis(ctx context.Context) (p *process, at string, err error) {
	if n := len(s.free); n > 0 {
		p, s.free = s.free[n-1], s.free[:n-1]
		return p, p.listens, nil
	}
	if p, at, err = s.startRedis(ctx); err != nil {
		return nil, "", err
	}
	p.listens = at
	p.giveBack = func() { s.free = append(s.free, p) }
	return p, at, nil
}

// newSecret returns a client secret and its digest in hexadecimal.
func newSecret() (secret, digest string) {
	text, sum := clients.NewSecret()
	return text.Reveal(), fmt.Sprintf("%x", sum)
}

// startSnowgate starts a gateway and waits until it decides and issues.
func (s *site) startSnowgate(ctx context.Context, o setup) (*gateway, error) {
	g, p, err := s.prepareSnowgate(ctx, o)
	if err != nil {
		return nil, err
	}
	if g.process, err = start(p); err != nil {
		return nil, err
	}
	s.running = append(s.running, g.process)
	err = g.until(ctx, g.ready)
	return g, err
}

// prepareSnowgate does all but starting the process.
func (s *site) prepareSnowgate(ctx context.Context, o setup) (*gateway, program, error) {
	port, err := freePort()
	adminPort, adminErr := freePort()
	if err := errors.Join(err, adminErr); err != nil {
		return nil, program{}, err
	}
	g := &gateway{address: address(port), admin: address(adminPort), url: "http://" + address(port), redis: o.redis, redisAt: o.at, secret: o.secret}
	if o.tls {
		g.url = "https://" + g.address
		o.env = append([]string{"SNOWGATE_TLS_CERT=" + s.cert, "SNOWGATE_TLS_KEY=" + s.key}, o.env...)
	}
	if o.redis == nil {
		if g.redis, g.redisAt, err = s.usedRedis(ctx); err != nil {
			return nil, program{}, err
		}
	}
	var path string
	if o.config == "" {
		var digest string
		g.secret, digest = newSecret()
		path, err = s.configure("snowgate.yaml", map[string]string{"DIGEST": digest})
	} else {
		path, err = s.write("snowgate.yaml", o.config)
	}
	binary := o.binary
	if binary == "" {
		binary = s.gateway
	}
	return g, program{path: binary, args: []string{"serve"}, core: gatewayCore, env: append([]string{
		"SNOWGATE_LISTEN=" + g.address,
		"SNOWGATE_ADMIN_LISTEN=" + g.admin,
		"SNOWGATE_CONFIG=" + path,
		"SNOWGATE_REDIS_URL=redis://" + g.redisAt,
		"SNOWGATE_DRAIN=0s",
		// The load's processor is full on purpose, and Redis is there, too. A refusal
		// because it was late would end the run.
		"SNOWGATE_STORE_TIMEOUT=2s",
	}, o.env...)}, err
}

// decides asks whether the gateway can decide.
func (g *gateway) decides() bool {
	decides, _ := g.state()
	return decides
}

// ready asks whether the gateway decides and issues.
func (g *gateway) ready() bool {
	_, issues := g.state()
	return issues
}

func (g *gateway) state() (decides, issues bool) {
	response, err := client.Get(g.url + "/readyz?for=decide") //nolint:noctx // loopback
	if err != nil {
		return false, false
	}
	defer response.Body.Close()
	var state struct {
		Issuing struct{ Ready bool }
	}
	err = json.NewDecoder(response.Body).Decode(&state)
	decides = err == nil && response.StatusCode == http.StatusOK
	return decides, decides && state.Issuing.Ready
}

// client is for single requests. It takes any certificate: they are our own.
var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
	DisableKeepAlives: true,
	TLSClientConfig:   trustAll,
}}

var trustAll = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // loopback

// holds checks that a gauge of the gateway has that value, so that a figure for
// many of something is not one for none.
func (g *gateway) holds(gauge string, want int) error {
	response, err := client.Get("http://" + g.admin + "/metrics") //nolint:noctx // loopback
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && !strings.Contains(string(text), "\n"+gauge+" "+strconv.FormatFloat(float64(want), 'g', -1, 64)+"\n") {
		err = fmt.Errorf("%s is not %d", gauge, want)
	}
	return err
}

// tokenForm asks for a token with two scopes.
const tokenForm = "grant_type=client_credentials&scope=orders.read+orders.write"

// token gets a token for clientID.
func (g *gateway) token(ctx context.Context) (string, error) {
	return g.tokenFor(ctx, clientID, g.secret, tokenForm)
}

func (g *gateway) tokenFor(ctx context.Context, id, secret, form string) (string, error) {
	return g.tokenBy(ctx, client, id, secret, form)
}

// tokenBy gets a token by means of an HTTP client.
func (g *gateway) tokenBy(ctx context.Context, by *http.Client, id, secret, form string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/oauth2/token", strings.NewReader(form))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(id, secret)
	response, err := by.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err = errors.Join(err, json.Unmarshal(body, &answer)); err != nil || response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("POST /oauth2/token: %s: %s", response.Status, body)
	}
	return answer.AccessToken, nil
}
