package integration_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// canaries finds secrets in texts, whole or in part: it knows every piece of
// pieceSize bytes of each.
type canaries struct {
	t      *testing.T
	pieces map[string]string // to the name of the secret
}

const pieceSize = 16

func newCanaries(t *testing.T) *canaries {
	return &canaries{t, make(map[string]string)}
}

func (c *canaries) add(name, secret string) {
	if len(secret) < pieceSize {
		c.t.Fatalf("%s is too short to be looked for", name)
	}
	for i := 0; i+pieceSize <= len(secret); i++ {
		c.pieces[secret[i:i+pieceSize]] = name
	}
}

// addToken adds a token's secret and tag, but not its id, which is public.
func (c *canaries) addToken(name, token string) string {
	c.add(name, token[len("sgt_0123456789A_"):])
	return token
}

// addClient adds a client's secret, also as Basic credentials hold it.
func (c *canaries) addClient(client gatewaytest.Credentials) gatewaytest.Credentials {
	c.add("the secret of "+client.ID, client.Secret)
	c.add("the Basic credentials of "+client.ID, basicOf(client)[len(client.ID)*4/3+2:])
	return client
}

func basicOf(client gatewaytest.Credentials) string {
	return base64.StdEncoding.EncodeToString([]byte(client.ID + ":" + client.Secret))
}

// search fails the test for every line of text that holds a piece of a secret.
func (c *canaries) search(where, text string) {
	c.t.Helper()
	for line := range strings.Lines(text) {
		for i := 0; i+pieceSize <= len(line); i++ {
			if name, found := c.pieces[line[i:i+pieceSize]]; found {
				c.t.Errorf("%s holds %s: …%.300q", where, name, line)
				break
			}
		}
	}
}

// journey is everything that the canary test does with one gateway.
type journey struct {
	*scene
	canaries       *canaries
	stranger       gatewaytest.Credentials // not registered, a secret of the right form
	token, revoked string
	expired        string
}

// TestSecretsAreNowhere: promise f. A broad journey at debug level, with every
// mistake a program could make with its credentials, and then no secret in any
// log line, metric, Redis key or value.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	c := newCanaries(t)
	s := &scene{t: t, redis: redistest.Start(t), upstream: gatewaytest.NewRecorder(t, "")}
	s.client = c.addClient(gatewaytest.NewClient("worker", "orders.read", "introspect: true"))
	hasty := c.addClient(gatewaytest.NewClient("hasty", "orders.read", "token_ttl: 1s"))
	config := fileOf([]gatewaytest.Credentials{s.client, hasty},
		`{name: orders, path: /orders, upstreams: [`+s.upstream.URL+`], scopes: [orders.read]}`,
		`{name: dead, path: /dead, upstreams: [http://127.0.0.1:1], scopes: [orders.read], websocket: true}`,
		`{name: public, path: /public, upstreams: [`+s.upstream.URL+`], public: true}`)
	s.Gateway = gatewaytest.Start(t, gatewaytest.Options{Config: config, Env: []string{"SNOWGATE_REDIS_URL=" + s.redis.URL(), "SNOWGATE_CACHE_TTL=0"}})
	j := &journey{scene: s, canaries: c, stranger: c.addClient(gatewaytest.NewClient("stranger", "a"))}
	c.add("the password of Redis", s.redis.Password())

	j.token = c.addToken("a live token", s.Token(s.client))
	j.revoked = c.addToken("a revoked token", s.Token(s.client))
	j.expired = c.addToken("an expired token", s.Token(hasty))
	j.use()
	j.mistakeTokens()
	j.mistakeSecrets()
	j.sendRawTexts()
	j.mistakeInTheFile(config)
	j.loseRedis()

	for _, key := range tagKeys(s.redis) {
		c.add("a tag key", key)
	}
	c.search("the log", s.Log())
	c.search("/metrics", s.ScrapeText())
	c.search("/readyz", s.Get("/readyz", "").Body)
	j.searchRedis()
	if n := len(s.Lines("request")); n < 100 {
		t.Errorf("only %d access lines: the journey was not broad", n)
	}
}

// use takes the right way.
func (j *journey) use() {
	j.t.Helper()
	if got := j.Get("/orders/1?page=1", j.token); got.StatusCode != http.StatusOK {
		j.t.Errorf("with the token: %d", got.StatusCode)
	}
	for _, token := range []string{j.token, j.revoked, j.expired} {
		if got := j.post("/oauth2/introspect", "token", token); got.StatusCode != http.StatusOK {
			j.t.Errorf("introspection: %d", got.StatusCode)
		}
	}
	if got := j.post("/oauth2/revoke", "token", j.revoked); got.StatusCode != http.StatusOK {
		j.t.Errorf("revocation: %d", got.StatusCode)
	}
	gatewaytest.Eventually(j.t, 5*time.Second, "a short token ends", func() bool {
		return j.Get("/orders/1", j.expired).StatusCode == http.StatusUnauthorized
	})
}

// mistakeTokens shows tokens in all the wrong places.
func (j *journey) mistakeTokens() {
	forged := j.token[:69] + string('0'+(j.token[69]+1)%10)
	for _, token := range []string{j.token, j.revoked, j.expired, forged, j.token[:60], j.token + "x", "x" + j.token} {
		for _, path := range []string{"/orders/1", "/dead/1", "/public/1", "/nowhere", "/oauth2/token", "/readyz"} {
			j.Get(path, token)
			j.Get(path+"?access_token="+token+"&a=1", "")
			j.Get(path+"/"+token, "")
		}
		for _, path := range []string{
			"/orders/%73gt" + token[3:], "//orders/" + token, "/orders/../" + token, "/orders/" + token[:30] + "%2f" + token[30:],
			"/orders/x%00" + token, "/orders/" + token[4:],
		} {
			j.Send("GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+token+"\r\n\r\n", time.Second)
		}
		for name, value := range map[string]string{
			"Authorization": token, "Proxy-Authorization": "Bearer " + token, "Cookie": "token=" + token, "User-Agent": "curl/" + token,
			"Referer": "https://x/?access_token=" + token, "X-Request-Id": token, "X-Api-Key": token, "Sec-WebSocket-Protocol": token,
			"X-Snowgate-Token-Id": token, "X-Forwarded-For": token, "Traceparent": token,
		} {
			request := j.Request(http.MethodGet, "/orders/1", nil)
			request.Header.Set(name, value)
			j.Do(request)
		}
		j.post("/oauth2/introspect", "token", token, "token_type_hint", token)
		j.post("/oauth2/revoke", "token", "x"+token)
		j.post("/oauth2/introspect?token="+token, "a", "b")
		j.post("/oauth2/token", "grant_type", token, "scope", token, "resource", token)
	}
}

// mistakeSecrets shows client secrets in all the wrong ways.
func (j *journey) mistakeSecrets() {
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, client := range []gatewaytest.Credentials{j.client, j.stranger} {
		for _, authorization := range []string{
			"Basic " + client.ID + ":" + client.Secret, // not encoded
			basic(client.Secret),                       // no id
			basic(client.Secret + ":" + client.ID),     // the wrong way round
			basic(client.ID + ":" + client.Secret + "\n"),
			basic(client.ID + ":%zz" + client.Secret),
			"Basic  " + basicOf(client) + " ",
			"Basic " + basicOf(client)[:60], // cut off
			"Bearer " + client.Secret,
			client.Secret,
			"Digest username=" + client.ID + ", response=\"" + client.Secret + "\"",
		} {
			for _, path := range []string{"/oauth2/token", "/oauth2/introspect", "/oauth2/revoke", "/orders/1", "/nowhere"} {
				request := j.Request(http.MethodPost, path, strings.NewReader("grant_type=client_credentials&token=x"))
				request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				request.Header.Set("Authorization", authorization)
				j.Do(request)
			}
		}
		for _, body := range []string{
			"grant_type=client_credentials&client_id=" + client.Secret + "&client_secret=" + client.ID,
			"grant_type=client_credentials&client_id=" + client.ID + "&client_secret=" + client.Secret + "&client_secret=" + client.Secret,
			"grant_type=client_credentials&client_id=" + client.ID + "&client_secret=" + client.Secret + "%zz",
			"client_id=" + client.ID + "&client_secret=" + client.Secret + "&grant_type=password&password=" + client.Secret,
			`{"client_id": "` + client.ID + `", "client_secret": "` + client.Secret + `"}`,
			strings.Repeat(client.Secret, 400),
		} {
			for _, kind := range []string{"application/x-www-form-urlencoded", "application/json"} {
				request := j.Request(http.MethodPost, "/oauth2/token", strings.NewReader(body))
				request.Header.Set("Content-Type", kind)
				j.Do(request)
			}
		}
		j.Get("/oauth2/token?"+url.Values{"client_id": {client.ID}, "client_secret": {client.Secret}}.Encode(), "")
		j.Get("/orders/"+client.Secret, "")
	}
}

// sendRawTexts sends what is hardly HTTP any more.
func (j *journey) sendRawTexts() {
	for _, text := range []string{
		"GET /orders/1 " + j.token + " HTTP/1.1\r\n\r\n",
		j.token + " /orders/1 HTTP/1.1\r\nHost: x\r\n\r\n", // as the method
		"GET " + j.token + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://" + j.client.ID + ":" + j.client.Secret + "@x/orders/1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /orders/1 HTTP/1.1\r\nHost: " + j.token + "\r\n\r\n",
		"GET /orders/1 HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer " + j.token + "\r\n\r\n",
		"GET /orders/1 HTTP/1.1\r\nHost: x\r\n" + j.token + ": x\r\n\r\n", // as a field name
		"GET /orders/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + j.token + "\r\nAuthorization: Basic " + basicOf(j.client) + "\r\n\r\n",
		"GET /orders/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat(j.token, 600) + "\r\n\r\n",
		"POST /orders/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + j.token + "\r\nContent-Length: 99\r\n\r\n" + j.token, // cut off
		"POST /oauth2/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 500\r\n\r\nclient_secret=" + j.client.Secret,
		"POST /orders/1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + j.token + "\r\n\r\n" + j.token + "\r\n",
		j.token + "\r\n\r\n",
	} {
		j.Send(text, 200*time.Millisecond)
	}
}

// mistakeInTheFile puts secrets where digests belong, and then reloads well.
func (j *journey) mistakeInTheFile(good string) {
	j.t.Helper()
	for i, bad := range []string{
		strings.Replace(good, "sha256: ", "sha256: "+j.client.Secret+" #", 1),
		strings.Replace(good, "sha256: ", "secret: "+j.client.Secret+", sha256: ", 1),
		strings.Replace(good, "scopes: [orders.read]", "scopes: ["+j.client.Secret+", {}]", 1),
		strings.Replace(good, "path: /dead", "path: "+j.token, 1),
		strings.Replace(good, "path: /dead", j.token+": 1", 1),
		strings.Replace(good, "http://127.0.0.1:1]", "http://u:"+j.client.Secret+"@x]", 1),
		good + "\n  " + j.client.Secret + "\n\t- x",
	} {
		replaceFile(j.t, j.ConfigPath, bad)
		j.Signal(syscall.SIGHUP)
		waitLines(j.t, j.Gateway, refused, i+1)
	}
	replaceFile(j.t, j.ConfigPath, good)
	j.Signal(syscall.SIGHUP)
	waitLines(j.t, j.Gateway, reread, 1)
}

// loseRedis repeats some of it while Redis is away: errors have causes.
func (j *journey) loseRedis() {
	j.t.Helper()
	j.redis.Freeze()
	j.scene.token = j.token
	j.wantRefused(j.decisions())
	j.redis.Resume()
	j.wantBack()
	j.canaries.addToken("a token from after the fault", j.Token(j.client))
	j.redis.Do("SET", "sg:t:"+tokenID(j.revoked), "rubbish "+j.revoked[4:8]) // a record that makes no sense
	j.Get("/orders/1", j.revoked)
	j.redis.Do("DEL", "sg:t:"+tokenID(j.revoked))
}

// tagKeys returns the tag keys, which are secrets that live in Redis.
func tagKeys(server *redistest.Server) []string {
	return strings.Split(server.Do("HVALS", "{sg}:tagkey"), "\n")
}

// searchRedis looks at every key and value, also as Redis writes them to disk,
// and for the digest that is to be there instead.
func (j *journey) searchRedis() {
	j.t.Helper()
	digest := sha256.Sum256([]byte(j.token[16:59]))
	record := j.redis.Do("GET", "sg:t:"+tokenID(j.token))
	if !strings.Contains(record, string(digest[:])) {
		j.t.Errorf("the record of a live token does not hold its digest: %q", record)
	}
	keys := strings.Split(j.redis.Do("KEYS", "*"), "\n")
	if !slices.Contains(keys, "sg:t:"+tokenID(j.token)) || slices.Contains(keys, "sg:t:"+tokenID(j.revoked)) {
		j.t.Errorf("keys %q: want that of the live token and not that of the revoked one", keys)
	}
	read := map[string][]string{
		"string": {"GET"}, "hash": {"HGETALL"}, "zset": {"ZRANGE", "0", "-1", "WITHSCORES"}, "set": {"SMEMBERS"}, "list": {"LRANGE", "0", "-1"},
	}
	for _, key := range keys {
		if key == "{sg}:tagkey" {
			continue // it is what it is for
		}
		command := read[j.redis.Do("TYPE", key)]
		value := j.redis.Do(append([]string{command[0], key}, command[1:]...)...)
		j.canaries.search("Redis", key+"\n"+value+"\n"+j.redis.Do("DUMP", key))
	}
}

// TestCanariesSing: a search that finds nothing must be able to find something.
func TestCanariesSing(t *testing.T) {
	t.Parallel()
	inner := new(testing.T)
	c := newCanaries(inner)
	client := c.addClient(gatewaytest.NewClient("worker", "a"))
	c.search("a log", "nothing of interest in a line that is long enough\n")
	if inner.Failed() {
		t.Error("found where nothing is")
	}
	for name, text := range map[string]string{
		"a piece":           "x" + client.Secret[10:26] + "x",
		"Basic credentials": `{"header":"Basic ` + basicOf(client) + `"}`,
	} {
		inner = new(testing.T)
		c.t = inner
		c.search("a log", text)
		if !inner.Failed() {
			t.Errorf("%s was not found", name)
		}
	}
}

// TestMetrics: what the operator's dashboards and alerts are made from.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{})
	s.call()
	s.Get("/orders/1", "")
	s.Get("/orders/1", s.token[:69]+string('0'+(s.token[69]+1)%10))
	s.introspect()
	s.revoke()
	s.call()
	s.token = s.Token(s.client) // of which the gateway knows nothing when Redis goes
	s.redis.Freeze()
	s.call()
	// The question to Redis may outlive the response to its first caller a little.
	gatewaytest.Eventually(t, 10*time.Second, "count the timeout", func() bool {
		return s.Metrics().Sum("snowgate_redis_errors_total", `kind="timeout"`) > 0
	})
	s.redis.Resume()
	s.Metrics() // is counted by the next
	m := s.Metrics()
	for _, want := range []struct {
		name   string
		labels []string
		least  float64
	}{
		{"snowgate_http_requests_total", []string{`route="orders"`, `method="GET"`, `status="2xx"`}, 1},
		{"snowgate_http_requests_total", []string{`route="orders"`, `method="GET"`, `status="4xx"`}, 3},
		{"snowgate_http_requests_total", []string{`route="orders"`, `method="GET"`, `status="5xx"`}, 1},
		{"snowgate_http_requests_total", []string{`route="/oauth2/token"`, `method="POST"`, `status="2xx"`}, 1},
		{"snowgate_http_request_duration_seconds_count", []string{`route="orders"`}, 5},
		{"snowgate_http_request_duration_seconds_sum", []string{`route="orders"`}, 0.2}, // one waited for Redis
		{"snowgate_http_requests_total", []string{`route="admin /metrics"`, `method="GET"`, `status="2xx"`}, 1},
		{"snowgate_tokens_issued_total", []string{`result="ok"`}, 1},
		{"snowgate_tokens_validated_total", []string{`result="ok"`}, 2},
		{"snowgate_tokens_validated_total", []string{`result="forged"`}, 1},
		{"snowgate_tokens_validated_total", []string{`result="unknown"`}, 1},
		{"snowgate_tokens_validated_total", []string{`result="unavailable"`}, 1},
		{"snowgate_tokens_revoked_total", []string{`result="ok"`}, 1},
		{"snowgate_redis_call_duration_seconds_count", []string{`command="get"`}, 3},
		{"snowgate_redis_errors_total", []string{`kind="timeout"`}, 1},
		{"idgen_healthy", nil, 1},
		{"idgen_worker_id", nil, 1},
		{"idgen_total_generated", nil, 1},
		{"idgen_heartbeat_timestamp", nil, float64(time.Now().Add(-time.Minute).Unix())},
	} {
		if got := m.Sum(want.name, want.labels...); got < want.least {
			t.Errorf("%s%v = %v, want at least %v", want.name, want.labels, got, want.least)
		}
	}
	for _, name := range []string{"idgen_error_count", "idgen_heartbeat_age", "snowgate_build_info"} {
		if !strings.Contains(s.ScrapeText(), "\n"+name) {
			t.Errorf("there is no %s", name)
		}
	}
	if age := m.Sum("idgen_heartbeat_age"); age < 0 || age > 10 {
		t.Errorf("idgen_heartbeat_age = %v", age)
	}
}

// TestMetricsStaySmall: whoever may send requests must not be able to fill the
// memory of Prometheus.
func TestMetricsStaySmall(t *testing.T) {
	t.Parallel()
	s := newStage(t, "SNOWGATE_LOG_LEVEL=info")
	if got := s.Get("/metrics", s.token); got.StatusCode != http.StatusNotFound {
		t.Errorf("/metrics on the public listener: %d, want 404", got.StatusCode)
	}
	visit := func(from, to int) {
		for i := from; i < to; i++ {
			zebra := fmt.Sprintf("ZEBRA%d", i)
			for _, path := range []string{"/" + zebra, "/svc/" + zebra, "/oauth2/" + zebra, "/livez/" + zebra, "//" + zebra, "/.well-known/" + zebra} {
				for _, method := range []string{http.MethodGet, zebra} {
					s.Exchange(method + " " + path + "?" + zebra + " HTTP/1.1\r\nHost: " + zebra + "\r\nUser-Agent: " + zebra +
						"\r\nConnection: close\r\nAuthorization: Bearer " + s.token + "\r\n\r\n")
				}
			}
			s.post(t, zebra)
		}
	}
	s.Metrics() // asking is a request too
	visit(0, 5)
	before := s.Metrics()
	visit(5, 40)
	for series := range s.Metrics() {
		if strings.Contains(series, `command="publish"`) {
			continue // the gateway asks itself now and then whether messages come through
		}
		if _, known := before[series]; !known && strings.HasPrefix(series, "snowgate_") {
			t.Errorf("%s is new after more of the same", series)
		}
	}
	if found := regexp.MustCompile(`(?i).*zebra.*`).FindString(s.ScrapeText()); found != "" {
		t.Errorf("a label has a value that a caller chose: %s", found)
	}
}

// post asks for a token with a made-up client, grant and scope.
func (s *stage) post(t *testing.T, made string) {
	t.Helper()
	s.Post("/oauth2/token", gatewaytest.Credentials{ID: made, Secret: made}, "grant_type", made)
	s.Post("/oauth2/token", s.client, "grant_type", made, "scope", made)
	s.Post("/oauth2/token", s.client, "grant_type", "client_credentials", "scope", made)
}
