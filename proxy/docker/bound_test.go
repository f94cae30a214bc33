package docker_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	mobycontainer "github.com/moby/moby/api/types/container"

	"snowgate/proxy/docker"
	"snowgate/proxy/docker/readonly"
)

// endless is a response body that begins with first and repeats more until left bytes were read.
type endless struct {
	rest, more string
	left       int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = e.more
	}
	if e.left <= 0 || e.rest == "" {
		return 0, io.EOF
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	e.left -= n
	return n, nil
}

// endlessResponses are responses without an end. bytes limits how much of each may be read.
var endlessResponses = []struct {
	why, path, header, first, more string
	status                         int
	bytes                          int64
}{
	{"a long text", "/containers/json", "", `["`, strings.Repeat("x", 4096), 200, 4 << 20},
	{"small objects", "/containers/json", "", `[{"Id":"x"}`, strings.Repeat(`,{"Id":"x"}`, 400), 200, 4 << 20},
	{"labels", "/containers/json", "", `[{"Labels":{"a":""`, strings.Repeat(`,"b":""`, 400), 200, 4 << 20},
	{"deep values", "/containers/json", "", `[`, strings.Repeat(`[`, 4096), 200, 4 << 20},
	{"deep values of no interest", "/containers/json", "", `[{"Mounts":`, strings.Repeat(`[{"a":`, 1000), 200, 4 << 20},
	{"blanks", "/containers/json", "", `[`, strings.Repeat("\n", 4096), 200, 4 << 20},
	{"networks", "/networks", "", `[{"Name":"x"}`, strings.Repeat(`,{"Name":"x"}`, 400), 200, 4 << 20},
	{"a refusal", "/containers/json", "", `{"message":"`, strings.Repeat("x", 4096), 500, 8 << 10},
	{"a refusal that is no JSON", "/containers/json", "", "", strings.Repeat("x", 4096), 404, 8 << 10},
	{"an event of one line", "/events", "", `{"Action":"`, strings.Repeat("x", 4096), 200, 256 << 10},
	{"an event of many lines", "/events", "", `{"Action":`, strings.Repeat("\n", 4096), 200, 256 << 10},
	{"an event of deep values", "/events", "", `{"Action":`, strings.Repeat("[", 4096), 200, 256 << 10},
	{"events of blanks", "/events", "", " ", strings.Repeat("\n", 4096), 200, 256 << 10},
	{"brackets in texts", "/events", "", `{"Action":"`, strings.Repeat(`}\"`, 1024), 200, 256 << 10},
	{"a refusal of events", "/events", "", `{"message":"`, strings.Repeat("x", 4096), 500, 8 << 10},
	{"a header", "/containers/json", strings.Repeat("x", 900<<10), `[]`, "", 200, 64 << 10},
}

// endlessDocker is a Docker API on a socket with an endless response. It adds the bytes that it
// sends to sent.
func endlessDocker(t *testing.T, i int, sent *atomic.Int64) (socket string, end func()) {
	t.Helper()
	const offered = 128 << 20
	tt := endlessResponses[i]
	socket = filepath.Join(t.TempDir(), "d.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, tt.path) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, "[]")
			return
		}
		if tt.header != "" {
			w.Header().Set("X-Long", tt.header)
		}
		w.WriteHeader(tt.status)
		n, _ := io.Copy(w, &endless{tt.first, tt.more, offered})
		sent.Add(n)
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	return socket, func() { server.CloseClientConnections(); server.Close() }
}

// allocatedBy returns how many bytes f, and everything that runs at the same time, allocates.
func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// mostAllocated is the limit for one response: a buffer that doubles until it holds a list, and the
// rest.
const mostAllocated = 12 << 20

// checkEndless compares the bytes sent and allocated with the limits.
func checkEndless(t *testing.T, i int, sent int64, allocated uint64) {
	t.Helper()
	tt := endlessResponses[i]
	// The bytes in the buffers of the connection were sent, too.
	if most := tt.bytes + 8<<20; sent > most {
		t.Errorf("%s: %d bytes were taken, want at most %d", tt.why, sent, most)
	}
	if sent == 0 {
		t.Errorf("%s: nothing was asked", tt.why)
	}
	if allocated > mostAllocated {
		t.Errorf("%s: %d bytes were allocated, want at most %d", tt.why, allocated, mostAllocated)
	}
}

// TestEndlessResponses counts the bytes that a watcher reads and allocates for endless responses.
func TestEndlessResponses(t *testing.T) {
	for i, tt := range endlessResponses {
		var sent atomic.Int64
		socket, end := endlessDocker(t, i, &sent)
		allocated := allocatedBy(func() {
			err := docker.ConnectOnce(t.Context(), "unix://"+socket)
			if err == nil || len(err.Error()) > 10_000 {
				t.Errorf("%s: the error is %.100v, want a short one", tt.why, err)
			}
			end() // waits for the handler
		})
		checkEndless(t, i, sent.Load(), allocated)
	}
}

// TestEndlessResponsesThroughTheProxy is TestEndlessResponses for docker-proxy.
func TestEndlessResponsesThroughTheProxy(t *testing.T) {
	for i, tt := range endlessResponses {
		var sent atomic.Int64
		socket, end := endlessDocker(t, i, &sent)
		proxy := readonly.New(socket)
		front := httptest.NewServer(proxy)
		allocated := allocatedBy(func() {
			response, err := http.Get(front.URL + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if n > 10_000 || tt.path != "/events" && response.StatusCode < 400 {
				t.Errorf("%s: %d with %d bytes, want a problem or an end", tt.why, response.StatusCode, n)
			}
			end()
		})
		checkEndless(t, i, sent.Load(), allocated)
		front.Close()
	}
}

// TestDearestLists: the most expensive lists within the limits need little more memory than their
// bytes.
func TestDearestLists(t *testing.T) {
	repeat := func(first, one, last string, bytes, times int) string {
		return first + strings.TrimSuffix(strings.Repeat(one+",", min(times, bytes/(len(one)+1))), ",") + last
	}
	const most, values = 4_000_000 - 100, 1<<17 - 100
	for why, text := range map[string]string{
		"containers":   repeat("[", "{}", "]", most, 1<<12),
		"mounts":       repeat(`[{"Mounts":[`, "{}", `]}]`, most, values/3),
		"ports":        repeat(`[{"Ports":[`, "{}", `]}]`, most, values/3),
		"names":        repeat(`[{"Names":[`, `""`, `]}]`, most, values),
		"labels":       `[{"Labels":{` + labels(values) + `"z":""}}]`,
		"a long label": `[{"Labels":{"a":"` + strings.Repeat("x", most) + `"}}]`,
	} {
		var list []mobycontainer.Summary
		var err error
		allocated := allocatedBy(func() {
			err = json.NewDecoder(docker.BoundList(io.NopCloser(strings.NewReader(text)))).Decode(&list)
		})
		if err != nil {
			t.Errorf("%s: %v", why, err)
		}
		if allocated > 64<<20 {
			t.Errorf("%s: a list of %d bytes takes %d", why, len(text), allocated)
		}
	}
}

func labels(n int) string {
	var text strings.Builder
	for i := range n {
		name, _ := netip.AddrFromSlice([]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
		text.WriteString(`"` + name.String() + `":"",`)
	}
	return text.String()
}

// TestLargeTruth: the list of a large host is within the limits.
func TestLargeTruth(t *testing.T) {
	one := `{"Id":"` + strings.Repeat("f", 64) + `","Names":["/shop-a-1"],"Labels":{` + strings.TrimSuffix(labels(40), ",") + `},"Ports":[{},{},{}],` +
		`"Mounts":[{"Source":"/a"}],"NetworkSettings":{"Networks":{"a":{"IPAddress":"","x":null},"b":{}}},"Command":"[[{,"}`
	text := "[" + one + strings.Repeat(","+one, 999) + "]"
	if _, err := io.Copy(io.Discard, docker.BoundList(io.NopCloser(strings.NewReader(text)))); err != nil {
		t.Errorf("a list of 1000 containers with %d bytes: %v", len(text), err)
	}
	event := `{"Actor":{"Attributes":{"a":"}\\\"{"}},"x":[1,2]}` + "\n"
	stream := strings.Repeat(event, 1<<20/len(event))
	if n, err := io.Copy(io.Discard, docker.BoundEvents(io.NopCloser(strings.NewReader(stream)))); err != nil || n != int64(len(stream)) {
		t.Errorf("%d of %d bytes of events were read: %v", n, len(stream), err)
	}
}

// TestEventsOfEverNewContainers: the memory that events take is limited.
func TestEventsOfEverNewContainers(t *testing.T) {
	if kept := docker.MarksAfterEvents(100_000); kept > 10_000 {
		t.Errorf("100000 events of containers that nobody listed leave %d marks", kept)
	}
}
