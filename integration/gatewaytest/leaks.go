package gatewaytest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Every secret that a test makes or gets through this package is remembered, and looked for in
// everything that gateways put out: see [Gateway.finish].

const (
	// windowLen is how many bytes of a secret are looked up at a time. A piece of
	// 2*windowLen-1 bytes, wherever in a secret it begins, holds one whole window.
	windowLen = 8
	pieceLen  = 2*windowLen - 1

	// sweepTimeout bounds how long is waited for a server that may be broken on purpose.
	sweepTimeout = 2 * time.Second
	// maxSearched bounds how much of the body of a response is searched, in bytes.
	maxSearched = 64 << 10
)

// secretTexts finds pieces of the secrets that were added to it. Its methods may be called by any
// goroutine.
type secretTexts struct {
	mu      sync.RWMutex
	known   map[string]bool
	windows map[uint64]window
	finds   []string // in responses, which belong to no gateway
}

// window is a place in a secret.
type window struct {
	name, secret string
	at           int
}

// remembered holds the secrets of all tests of the process.
var remembered = newSecretTexts()

func newSecretTexts() *secretTexts {
	return &secretTexts{known: make(map[string]bool), windows: make(map[uint64]window)}
}

// add remembers a secret. It leaves out secrets that are too short to be told from other text.
func (s *secretTexts) add(name, secret string) {
	if len(secret) < pieceLen {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[secret] {
		return
	}
	s.known[secret] = true
	for at := 0; at+windowLen <= len(secret); at += windowLen {
		s.windows[windowOf(secret[at:])] = window{name, secret, at}
	}
}

// addClient remembers a client's secret as it is and as Basic credentials hold it.
func (s *secretTexts) addClient(id, secret string) {
	s.add("the secret of "+id, strings.TrimPrefix(secret, "sgs_"))
	basic := base64.StdEncoding.EncodeToString([]byte(id + ":" + secret))
	s.add("the Basic credentials of "+id, basic[(len(id)+len(":sgs_"))*4/3+1:])
}

var tokenTexts = regexp.MustCompile(`sgt_[0-9A-Za-z]{11}_([0-9A-Za-z]{54})`)

// learn remembers the tokens and client secrets that a response brings.
func (s *secretTexts) learn(body string) {
	if !strings.Contains(body, `"access_token"`) && !strings.Contains(body, `"client_secret"`) {
		return
	}
	for _, token := range tokenTexts.FindAllStringSubmatch(body, -1) {
		s.add("a token", token[1])
	}
	for _, secret := range clientSecretTexts.FindAllString(body, -1) {
		s.addClient("a client", secret)
	}
}

var clientSecretTexts = regexp.MustCompile(`sgs_[0-9A-Za-z]{49}`)

// learnEnv remembers the secrets among the variables of a gateway.
func (s *secretTexts) learnEnv(env []string) {
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "SNOWGATE_ADMIN_CLIENT_SECRET":
			s.addClient("admin", value)
		case "SNOWGATE_TOKEN_KEY":
			s.add("the token key", value)
		case "SNOWGATE_REDIS_URL":
			if u, err := url.Parse(value); err == nil {
				password, _ := u.User.Password()
				s.add("the password of Redis", password)
			}
		}
	}
}

// search tells the first piece of a secret in text, empty if there is none.
func (s *secretTexts) search(where, text string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, run := 0, 0; i < len(text); i++ {
		if !isBase64(text[i]) {
			run = 0
			continue
		}
		if run++; run < windowLen {
			continue
		}
		begin := i + 1 - windowLen
		if w, found := s.windows[windowOf(text[begin:])]; found && common(w.secret, w.at, text, begin) >= pieceLen {
			return fmt.Sprintf("%s holds %s: …%q…", where, w.name, text[max(0, begin-60):begin+windowLen])
		}
	}
	return ""
}

func windowOf(text string) uint64 { return binary.LittleEndian.Uint64([]byte(text[:windowLen])) }

func isBase64(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '+' || c == '/' || c == '=' || c == '-'
}

// common returns how many bytes around a[i] and b[j] are the same in both.
func common(a string, i int, b string, j int) int {
	back := 0
	for i > back && j > back && a[i-back-1] == b[j-back-1] {
		back++
	}
	n := 0
	for i+n < len(a) && j+n < len(b) && a[i+n] == b[j+n] {
		n++
	}
	return back + n
}

// inspect searches a refusal, and remembers what any other response brings.
func (s *secretTexts) inspect(status int, header http.Header, body string) {
	body = body[:min(len(body), maxSearched)]
	if status < http.StatusBadRequest {
		s.learn(body)
		return
	}
	var text strings.Builder
	_ = header.Write(&text)
	find := s.search(fmt.Sprintf("a response with %d", status), text.String()+"\n"+body)
	if find == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds = append(s.finds, find)
}

// inspecting searches the responses that tests read with clients of their own.
type inspecting struct {
	http.RoundTripper
	secrets *secretTexts
}

// Inspect returns a transport that sends by way of inner. The responses that it brings are searched
// for secrets as those of [Gateway.Do] are. Clients without a transport have it, see [Run].
func Inspect(inner http.RoundTripper) http.RoundTripper { return inspecting{inner, remembered} }

// RoundTrip implements [http.RoundTripper].
func (i inspecting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.RoundTripper.RoundTrip(r)
	if err != nil || response.StatusCode == http.StatusSwitchingProtocols {
		return response, err
	}
	body := &seenBody{ReadCloser: response.Body}
	body.end = sync.OnceFunc(func() { i.secrets.inspect(response.StatusCode, response.Header, body.seen.String()) })
	response.Body = body
	return response, nil
}

// seenBody notes what is read of a body, and calls end when it is over.
type seenBody struct {
	io.ReadCloser
	seen strings.Builder
	end  func()
}

func (b *seenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.seen.Write(p[:min(n, maxSearched-b.seen.Len())])
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *seenBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// inspectRaw is inspect for the bytes of a connection.
func (s *secretTexts) inspectRaw(raw string) { s.inspect(Status(raw), nil, raw) }

// take returns what was found in responses since the last time.
func (s *secretTexts) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	finds := s.finds
	s.finds = nil
	return finds
}

// sweep searches what a gateway shows only while it runs: its metrics, and its Redis.
func (g *Gateway) sweep() []string {
	var finds []string
	note := func(find string) {
		if find != "" {
			finds = append(finds, find)
		}
	}
	if g.Alive() && g.AdminURL != "" {
		page, err := scrape(g.AdminURL + "/metrics")
		if err != nil {
			g.t.Logf("the metrics were not searched for secrets: %v", err)
		}
		note(remembered.search("/metrics", page))
	}
	text := g.redisURL()
	if text == "" && g.Alive() {
		text = g.EmbeddedURL()
	}
	if text != "" {
		err := eachValue(text, func(text string) { note(remembered.search("Redis", text)) })
		if err != nil {
			g.t.Logf("Redis was not searched for secrets: %v", err)
		}
	}
	return finds
}

// scrape reads a page of a gateway that may hang.
func scrape(page string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// redisURL returns the Redis that the gateway was given, empty if there is none.
func (g *Gateway) redisURL() (text string) {
	for _, entry := range g.cmd.Env { // the last one counts
		if value, ok := strings.CutPrefix(entry, "SNOWGATE_REDIS_URL="); ok {
			text = value
		}
		if path, ok := strings.CutPrefix(entry, "SNOWGATE_REDIS_URL_FILE="); ok {
			content, _ := os.ReadFile(path)
			text = strings.TrimSpace(string(content))
		}
	}
	return text
}

// eachValue calls search with every key of a Redis and what it holds: of one server, of the primary
// that a Sentinel names, or of all primaries of a cluster. It calls search from one goroutine at a time.
func eachValue(address string, search func(text string)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*sweepTimeout)
	defer cancel()
	scheme, rest, _ := strings.Cut(address, "://")
	secure, topology, _ := strings.Cut(scheme, "+")
	switch topology {
	case "cluster":
		options, err := redis.ParseClusterURL(secure + "://" + rest)
		if err != nil {
			return err
		}
		options.DialTimeout, options.ReadTimeout = sweepTimeout, sweepTimeout
		client := redis.NewClusterClient(options)
		defer client.Close()
		var one sync.Mutex
		return client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			one.Lock()
			defer one.Unlock()
			return eachOf(ctx, node, search)
		})
	case "sentinel":
		options, err := redis.ParseFailoverURL(secure + "://" + rest)
		if err != nil {
			return err
		}
		options.MaxRetries, options.DialerRetries, options.DialTimeout, options.ReadTimeout = -1, 1, sweepTimeout, sweepTimeout
		client := redis.NewFailoverClient(options)
		defer client.Close()
		return eachOf(ctx, client, search)
	default:
		options, err := redis.ParseURL(address)
		if err != nil {
			return err
		}
		options.MaxRetries, options.DialerRetries, options.DialTimeout, options.ReadTimeout = -1, 1, sweepTimeout, sweepTimeout
		client := redis.NewClient(options)
		defer client.Close()
		return eachOf(ctx, client, search)
	}
}

// eachOf is eachValue for one server.
func eachOf(ctx context.Context, client *redis.Client, search func(text string)) error {
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, "*", 1000).Result()
		if err != nil {
			return err
		}
		values, err := readAll(ctx, client, keys)
		if err != nil {
			return err
		}
		search(strings.Join(keys, "\n") + "\n" + strings.Join(values, "\n"))
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// readAll returns the values of keys, of any type, in two round trips.
func readAll(ctx context.Context, client *redis.Client, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	types, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.Type(ctx, key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	commands := map[string][]any{
		"string": {"GET"}, "hash": {"HGETALL"}, "set": {"SMEMBERS"}, "list": {"LRANGE", 0, -1}, "zset": {"ZRANGE", 0, -1}, "stream": {"XRANGE", "-", "+"},
	}
	read, _ := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			if command := commands[types[i].(*redis.StatusCmd).Val()]; command != nil {
				p.Do(ctx, append([]any{command[0], key}, command[1:]...)...)
			}
		}
		return nil
	})
	values := make([]string, 0, len(read))
	for _, cmd := range read { // what has expired meanwhile is an error of its own
		value, err := cmd.(*redis.Cmd).Result()
		if err != nil && err != redis.Nil {
			return nil, err
		}
		values = append(values, fmt.Sprint(value))
	}
	return values, nil
}
