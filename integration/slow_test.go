package integration_test

import (
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// slow is one way of slowhttptest to be slow.
type slow struct {
	name string
	args []string
	path string
	// closed tells that the gateway has closed every connection within slowTime.
	closed bool
	limit  string // of the gateway
}

// slowWays are what the limits of the gateway are for, one of each.
var slowWays = []slow{
	{"headers", []string{"-H", "-i", "2"}, "/public/x", true, "readHeaderTimeout, 10 s for the whole header"},
	{"form", []string{"-B", "-i", "2", "-s", "8192", "-x", "10"}, "/oauth2/token", true, "formTime, 10 s for the whole form"},
	{"unwanted body", []string{"-B", "-i", "2", "-s", "8192", "-x", "10"}, "/svc/x", true, "answered 401 at once, and readTimeout, 10 s, for what is not read"},
	{"body", []string{"-B", "-i", "2", "-s", "8192", "-x", "10"}, "/public/x", false, "a pause of 60 s within a body; one of 2 s is allowed"},
	{"read", []string{"-X", "-w", "1", "-y", "64", "-n", "2", "-z", "5", "-k", "1"}, "/public/large", false, "60 s in which nothing is taken"},
}

const (
	slowConnections = 200
	slowRate        = 50               // new ones in a second: other tests run beside this one
	slowTime        = 30 * time.Second // enough to connect and to be cut off on a busy machine
)

// patientEnv keeps a machine that has too much to do from being taken for a Redis
// that does not answer.
var patientEnv = []string{"SNOWGATE_STORE_TIMEOUT=10s", "SNOWGATE_CACHE_TTL=10m"}

// TestSlowClients runs slowhttptest against the gateway in every way at once, with
// a good request in between all the time. Who is slower than the limits is cut off,
// and the others are served.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	program := gatewaytest.Require(t, "slowhttptest", "slowhttptest")
	large := bytes.Repeat([]byte("x"), 4<<20) // more than the kernel takes
	service := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/large") {
			_, _ = w.Write(large)
		}
	}))
	t.Cleanup(service.Close)
	client := gatewaytest.NewClient("worker", "read")
	g := gatewaytest.Start(t, gatewaytest.Options{Env: patientEnv, Config: "clients:\n" + client.YAML + `routes:
  - {name: public, path: /public, upstreams: ["` + service.URL + `"], public: true}
  - {name: svc, path: /svc, upstreams: ["` + service.URL + `"], scopes: [read]}
`})
	token := g.Token(client)
	before := g.Memory()

	var attacks sync.WaitGroup
	for _, way := range slowWays {
		attacks.Go(func() { way.attack(t, program, g.URL) })
	}
	over := make(chan struct{})
	go func() { attacks.Wait(); close(over) }()
	served, memory := 0, before
	for attacked := true; attacked; {
		select {
		case <-over:
			attacked = false
		case <-time.After(50 * time.Millisecond):
		}
		if got := g.Get("/svc/x", token); got.StatusCode != http.StatusOK {
			t.Fatalf("a good request in between = %d %s, want 200", got.StatusCode, got.Body)
		}
		served++
		memory = max(memory, g.Memory())
	}
	t.Logf("%d good requests were served, with %d KB more memory for each of %d slow connections", served, (memory-before)>>10/int64(len(slowWays)*slowConnections), len(slowWays)*slowConnections)
	if memory > before+128<<20*gatewaytest.MemoryScale() {
		t.Errorf("memory grew from %d to %d MB", before>>20, memory>>20)
	}
}

// colours are what slowhttptest writes between the words.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// attack runs slowhttptest, which asks for something itself now and then.
func (s slow) attack(t *testing.T, program, url string) {
	args := append([]string{
		"-c", strconv.Itoa(slowConnections), "-r", strconv.Itoa(slowRate), "-l", strconv.Itoa(int(slowTime / time.Second)),
		"-p", "10", "-v", "1", "-u", url + s.path,
	}, s.args...)
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	text := colours.ReplaceAllString(string(out), "")
	if err != nil || !regexp.MustCompile(`service available: +YES`).MatchString(text) || regexp.MustCompile(`service available: +NO`).MatchString(text) {
		t.Errorf("slow %s: %v, want the service available all the time:\n%s", s.name, err, text)
	}
	if s.closed && !strings.Contains(text, "No open connections left") {
		t.Errorf("slow %s: connections are open after %v, in spite of %s:\n%s", s.name, slowTime, s.limit, text)
	}
}
