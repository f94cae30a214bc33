package foreign_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

const (
	chunkedAtOnce = 16        // responses that are under way
	mostOf        = 256 << 10 // most of one response, in bytes
)

// block is what responses consist of: no part of it is like another.
var block = func() []byte {
	b := make([]byte, 1<<20-3)
	_, _ = rand.NewChaCha8([32]byte{21}).Read(b)
	return b
}()

// part is what one response must hold, and how it is cut.
type part struct {
	from, length int
	pieces       string // lengths with times, as in 1x100,4096
}

// add appends a piece so many times, as long as there is room.
func (p *part) add(length, times int) {
	times = min(times, (mostOf-p.length)/length)
	if times < 1 {
		return
	}
	if p.pieces != "" {
		p.pieces += ","
	}
	p.pieces += strconv.Itoa(length) + "x" + strconv.Itoa(times)
	p.length += length * times
}

// newPart makes up a response in one of four styles.
func newPart(source *rand.Rand) part {
	p := part{from: source.IntN(len(block) - mostOf)}
	switch source.IntN(4) {
	case 0: // byte by byte
		p.add(1, 1+source.IntN(100))
	case 1: // around the size of a buffer
		for range 1 + source.IntN(16) {
			p.add(4088+source.IntN(16), 1)
		}
	case 2: // of all sizes up to 64 KiB
		for range 1 + source.IntN(12) {
			p.add(1+source.IntN(1<<source.IntN(17)), 1)
		}
	default: // the same size again and again
		p.add([]int{7, 100, 1000, 2048}[source.IntN(4)], 1+source.IntN(60))
	}
	return p
}

// query is the part as services are asked for it.
func (p part) query() string { return fmt.Sprintf("?from=%d&pieces=%s", p.from, p.pieces) }

// serveChunks is the service that is written in Go.
func serveChunks(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	at, _ := strconv.Atoi(query.Get("from"))
	for item := range strings.SplitSeq(query.Get("pieces"), ",") {
		first, second, _ := strings.Cut(item, "x")
		length, _ := strconv.Atoi(first)
		times, _ := strconv.Atoi(second)
		for range times {
			_, _ = w.Write(block[at : at+length])
			_ = http.NewResponseController(w).Flush()
			at += length
		}
	}
}

// chunkServices start the services, which answer GET /chunks with a part; each returns
// its address.
var chunkServices = []struct {
	name  string
	start func(t *testing.T, file string) string
}{
	{"Go", func(t *testing.T, _ string) string { return startGo(t) }},
	{"nginx", startNginx},
	{"Python http.server", func(t *testing.T, file string) string {
		addr := freePort(t)
		_, port, _ := net.SplitHostPort(addr)
		startServer(t, addr, gatewaytest.Require(t, "python3", "python3"), filepath.Join("testdata", "services", "chunks.py"), port, file)
		return addr
	}},
	{"Node.js", func(t *testing.T, file string) string {
		addr := freePort(t)
		_, port, _ := net.SplitHostPort(addr)
		startServer(t, addr, gatewaytest.Require(t, "node", "nodejs"), filepath.Join("testdata", "services", "chunks.mjs"), port, file)
		return addr
	}},
	{"gunicorn", func(t *testing.T, file string) string {
		addr := freePort(t)
		startServer(t, addr, gatewaytest.Require(t, "gunicorn", "gunicorn"), "--bind", addr, "--worker-class", "gthread", "--threads", strconv.Itoa(2*chunkedAtOnce),
			"--graceful-timeout", "1", "--env", "BLOCK="+file, "--chdir", filepath.Join("testdata", "services"), "chunks:application")
		return addr
	}},
}

func startGo(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(serveChunks))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// startNginx starts an nginx that cuts what it has from a service in Go anew: it
// reads with small buffers, and what a filter looks at has no length.
func startNginx(t *testing.T, _ string) string {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx"
		if _, err := os.Stat(program); err != nil {
			gatewaytest.Missing(t, "nginx is not in PATH (Debian: apt-get install nginx-light)")
		}
	}
	dir, addr := t.TempDir(), freePort(t)
	config := strings.NewReplacer("DIR", dir, "ADDR", addr, "SERVICE", startGo(t)).Replace(`
daemon off;
master_process off;
pid DIR/pid;
error_log stderr;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	keepalive_requests 1000000;
	postpone_output 0;
	upstream service { server SERVICE; keepalive 32; }
	server {
		listen ADDR;
		location / {
			proxy_pass http://service;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
			proxy_buffer_size 1k;
			sub_filter_types *;
			sub_filter "no response holds this" "";
		}
	}
}
`)
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	startServer(t, addr, program, "-p", dir, "-c", path, "-e", "stderr")
	return addr
}

// chunkedClients are a client of HTTP/1.1 and one of HTTP/2.
func chunkedClients(t *testing.T) []*http.Client {
	t.Helper()
	one := &http.Transport{MaxIdleConnsPerHost: chunkedAtOnce, DisableCompression: true}
	two := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	two.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() { one.CloseIdleConnections(); two.CloseIdleConnections() })
	return []*http.Client{{Transport: one, Timeout: time.Minute}, {Transport: two, Timeout: time.Minute}}
}

var errPart = errors.New("the response is not what was asked for")

// fetch asks for a part and compares.
func fetch(client *http.Client, base string, p part) error {
	response, err := client.Get(base + p.query())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", len(body), p.length, err)
	}
	if want := block[p.from : p.from+p.length]; response.StatusCode != http.StatusOK || !bytes.Equal(body, want) {
		return fmt.Errorf("%w: %d with %d bytes, want %d", errPart, response.StatusCode, len(body), len(want))
	}
	return nil
}

// TestChunkedResponses asks each service for many responses in chunks of all sizes and
// compares every byte.
func TestChunkedResponses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "block")
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	amount := amountOf(500, 1000, 10_000)
	for _, service := range chunkServices {
		t.Run(service.name, func(t *testing.T) {
			addr := service.start(t, file)
			wantChunks(t, addr)
			g := gatewaytest.Start(t, gatewaytest.Options{Env: []string{"SNOWGATE_H2C=true", "SNOWGATE_LOG_LEVEL=info"}, Config: "clients: []\nroutes: [{name: public, path: /chunks, upstreams: [\"http://" + addr + "\"], public: true}, " +
				"{name: standard, path: /standard, upstreams: [\"http://" + addr + "\"], public: true, transport: standard}]"})
			begin := time.Now()
			total := fetchAll(t, g.URL+"/chunks", amount)
			record(t, "chunked responses of "+service.name, fmt.Sprintf("%d, %d MiB", amount, total>>20), time.Since(begin))
			begin = time.Now()
			total = fetchAll(t, g.URL+"/standard", amount/5)
			record(t, "chunked responses of "+service.name+", transport: standard", fmt.Sprintf("%d, %d MiB", amount/5, total>>20), time.Since(begin))
		})
	}
}

// wantChunks checks that the service answers as this test is about.
func wantChunks(t *testing.T, addr string) {
	t.Helper()
	response, err := http.Get((&url.URL{Scheme: "http", Host: addr, Path: "/chunks", RawQuery: "from=0&pieces=1000x3,5x1"}).String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || len(response.TransferEncoding) != 1 || !bytes.Equal(body, block[:3005]) {
		t.Fatalf("the service itself answers %d with %q, %d bytes, %v; want 3005 in chunks", response.StatusCode, response.TransferEncoding, len(body), err)
	}
}

// fetchAll fetches so many parts, every fourth by HTTP/2, and returns how many bytes
// they had.
func fetchAll(t *testing.T, base string, amount int) int64 {
	t.Helper()
	clients := chunkedClients(t)
	var running sync.WaitGroup
	var next, total, failed atomic.Int64
	for range chunkedAtOnce {
		running.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(amount) || failed.Load() > 10 {
					return
				}
				client := clients[0]
				if i%4 == 0 {
					client = clients[1]
				}
				p := newPart(rand.New(rand.NewPCG(21, uint64(i))))
				if err := fetch(client, base, p); err != nil {
					failed.Add(1)
					t.Errorf("response %d, %s: %v", i, p.query(), err)
				}
				total.Add(int64(p.length))
			}
		})
	}
	running.Wait()
	return total.Load()
}
