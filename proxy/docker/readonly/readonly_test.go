package readonly_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"snowgate/proxy/docker/dockertest"
	"snowgate/proxy/docker/readonly"
)

// start starts a proxy in front of a fake API.
func start(t *testing.T) (*dockertest.Server, *httptest.Server) {
	t.Helper()
	docker := dockertest.Start(t, "unix")
	docker.AddNetwork("shop_net", "10.0.0.0/24")
	docker.Set(dockertest.Container{
		ID: "1", Name: "shop-a-1", Port: 80, Address: "10.0.0.2",
		Labels: map[string]string{"snowgate.enable": "true", "com.docker.compose.project": "shop", "traefik.password": "hunter2"},
	})
	proxy := httptest.NewServer(readonly.New(docker.Socket))
	t.Cleanup(proxy.Close)
	return docker, proxy
}

// exchange writes a raw request and returns the status and body of the response.
func exchange(t *testing.T, address, raw string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, raw)
	method, _, _ := strings.Cut(raw, " ")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

const listing = "/containers/json?all=1&filters=%7B%22label%22%3A%7B%22snowgate.enable%22%3Atrue%7D%7D"

func TestWhatIsLetThrough(t *testing.T) {
	_, proxy := start(t)
	address := proxy.Listener.Addr().String()
	for target, want := range map[string]string{
		"GET /_ping":                 "OK",
		"HEAD /_ping":                "",
		"GET /v1.41/_ping":           "OK",
		"GET /v1.41" + listing:       `"Id":"1"`,
		"GET " + listing + "&size=1": `"10.0.0.2"`,
		"GET /v1.41/networks":        `"shop_net"`,
		"GET /networks":              `"10.0.0.0/24"`,
	} {
		status, body := exchange(t, address, target+" HTTP/1.1\r\nHost: d\r\n\r\n")
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s = %d %s, want 200 with %s", target, status, body, want)
		}
		if strings.Contains(body, "hunter2") || strings.Contains(body, "/root/secrets") {
			t.Errorf("%s tells secrets: %s", target, body)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	docker, proxy := start(t)
	address := proxy.Listener.Addr().String()
	var raws []string
	for _, target := range []string{
		"/", "/info", "/version", "/images/json", "/containers/1/json", "/containers/1/logs", "/networks/shop_net", "/volumes", "/secrets",
		"/containers/json/", "//containers/json", "/./networks", "/networks/../info", "/info/../networks", "/networks/..%2finfo", "/%6eetworks",
		"/networks%2f", "/networks%00", "/networks;x", "/Networks", "/v1.41//networks", "/v1.41/v1.41/networks", "/v1/networks", "/vx.1/networks",
		"/v1.41", "/v1.41/../info", "http://d/networks", "*", "/networks#x", "/containers/json%3fall=1", "/v1.9999/networks",
	} {
		raws = append(raws, "GET "+target+" HTTP/1.1\r\nHost: d\r\n\r\n")
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "get"} {
		raws = append(raws, method+" /networks HTTP/1.1\r\nHost: d\r\n\r\n")
	}
	raws = append(raws,
		"POST /containers/create HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\n{}",
		"HEAD /events HTTP/1.1\r\nHost: d\r\n\r\n",
		"GET /networks HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\n{}",
		"GET /networks HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET /events HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
		"GET /networks HTTP/1.1\r\nHost: d\r\nX-HTTP-Method-Override: POST\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
	)
	for _, raw := range raws {
		if status, body := exchange(t, address, raw); status != http.StatusForbidden && status != http.StatusBadRequest {
			t.Errorf("%q = %d %s, want 403", raw, status, body)
		}
	}
	if status, _ := exchange(t, address, "CONNECT d:80 HTTP/1.1\r\nHost: d:80\r\n\r\n"); status != http.StatusForbidden {
		t.Errorf("CONNECT = %d, want 403", status)
	}
	if asked := docker.Requests(); len(asked) > 0 {
		t.Errorf("Docker was asked %q", asked)
	}
}

func TestEventsAreReduced(t *testing.T) {
	docker, proxy := start(t)
	response, err := http.Get(proxy.URL + "/v1.41/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	docker.Event("exec_start: sh -c hunter2", "1")
	docker.Emit(`{"Type":"image","Action":"pull","Actor":{"ID":"x"}}` + "\n")
	docker.Event("kill", "1", "signal", "15", "snowgate.path", "/a", "password", "hunter2")
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	const want = `{"Type":"container","Action":"kill","Actor":{"ID":"1","Attributes":{"signal":"15","snowgate.enable":"true"}}}` + "\n"
	if err != nil || line != want {
		t.Errorf("the first event is %s %v, want %s", line, err, want)
	}
	docker.CutEvents()
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q %v", rest, err)
	}
}

// TestEventsEndWithTheirClient: when a client goes away, its request to Docker ends.
func TestEventsEndWithTheirClient(t *testing.T) {
	docker, proxy := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, proxy.URL+"/events", nil)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if docker.Watchers() != 1 {
		t.Fatal("nobody listens")
	}
	cancel()
	for deadline := time.Now().Add(10 * time.Second); docker.Watchers() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Docker is still listened to")
		}
	}
}

func TestDockerFails(t *testing.T) {
	docker, proxy := start(t)
	address := proxy.Listener.Addr().String()
	for fault, want := range map[dockertest.Fault]int{dockertest.Broken: 502, dockertest.Garbage: 502} {
		docker.SetFault(fault)
		status, body := exchange(t, address, "GET /networks HTTP/1.1\r\nHost: d\r\n\r\n")
		var problem struct{ Status int }
		if status != want || json.Unmarshal([]byte(body), &problem) != nil || problem.Status != want {
			t.Errorf("fault %d: %d %s, want a problem %d", fault, status, body, want)
		}
	}
	docker.Stop()
	if status, body := exchange(t, address, "GET /_ping HTTP/1.1\r\nHost: d\r\n\r\n"); status != http.StatusBadGateway || strings.Contains(body, docker.Socket) {
		t.Errorf("without Docker: %d %s, want 502 and no path", status, body)
	}
}

// TestOnePeerKeepsNobodyOut: a peer that opens too many streams causes only streams of its own to
// end.
func TestOnePeerKeepsNobodyOut(t *testing.T) {
	docker, proxy := start(t)
	open := func(from string) *http.Response {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
		response, err := client.Get(proxy.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close(); client.CloseIdleConnections() })
		if response.StatusCode != http.StatusOK {
			t.Fatalf("events for %s: %d, want 200", from, response.StatusCode)
		}
		return response
	}
	before := open("127.0.0.2")
	first := open("127.0.0.3")
	for range 100 {
		open("127.0.0.3")
	}
	if rest, err := io.ReadAll(first.Body); err != nil || len(rest) > 0 {
		t.Errorf("the first of many streams: %q %v, want its end", rest, err)
	}
	for deadline := time.Now().Add(10 * time.Second); docker.Watchers() > 9; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are open, want 9", docker.Watchers())
		}
	}
	after := open("127.0.0.4")
	docker.Event("kill", "1", "signal", "15")
	for _, response := range []*http.Response{before, after} {
		if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"kill"`) {
			t.Errorf("a stream of another peer: %q %v, want an event", line, err)
		}
	}
}

// FuzzTarget: Docker gets no other targets than the permitted ones, however they are spelt.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"/networks", "/v1.41/events", "//_ping", "/containers/json?x", "/networks/%2e%2e/info", "/_ping#", "http://x/_ping"} {
		f.Add(seed)
	}
	docker := dockertest.Start(f, "unix")
	proxy := readonly.New(docker.Socket)
	f.Fuzz(func(t *testing.T, target string) {
		if strings.Contains(target, "/events") || strings.ContainsAny(target, " \r\n") {
			return // a stream has no end
		}
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: d\r\n\r\n", target))))
		if err != nil {
			return
		}
		docker.SetFault(dockertest.Broken)
		before := len(docker.Requests())
		proxy.ServeHTTP(httptest.NewRecorder(), request)
		path, _, _ := strings.Cut(target, "?")
		for _, asked := range docker.Requests()[before:] {
			if !strings.HasSuffix(path, strings.TrimPrefix(asked, "GET ")) {
				t.Errorf("%q became %q", target, asked)
			}
			switch asked {
			case "GET /_ping", "GET /containers/json", "GET /networks":
			default:
				t.Errorf("%q became %q", target, asked)
			}
		}
	})
}
