package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

const (
	// volumeShort and volumeLong are what is streamed each way, in bytes: the long
	// one needs SNOWGATE_TEST_LONG=1.
	volumeShort = 200 << 20
	volumeLong  = 10 << 30
)

func volumeSize() int64 {
	switch {
	case os.Getenv("SNOWGATE_TEST_LONG") == "1":
		return volumeLong
	case raceDetector:
		return volumeShort / 10
	default:
		return volumeShort
	}
}

// volumeMemory returns how much more the gateway may have resident at any moment of
// a stream than before it, in bytes.
func volumeMemory() int64 {
	if raceDetector {
		return 256 << 20
	}
	return 64 << 20
}

// volumeBlock is what streams repeat. Its length is a prime number, so that no
// buffer's length divides it and a piece that is lost, doubled or swapped shows.
var volumeBlock = func() []byte {
	block := make([]byte, 1<<20-3)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(block)
	return block
}()

// volumeReader reads a stream of a given length.
type volumeReader struct {
	at, length int64
	delivered  *atomic.Int64 // nil: nobody asks
}

func (r *volumeReader) Read(p []byte) (int, error) {
	if r.at == r.length {
		return 0, io.EOF
	}
	n := copy(p, volumeBlock[r.at%int64(len(volumeBlock)):])
	n = int(min(int64(n), r.length-r.at))
	r.at += int64(n)
	if r.delivered != nil {
		r.delivered.Store(r.at)
	}
	return n, nil
}

var errVolume = errors.New("the stream is not what was sent")

// volumeChecker compares what is written to it with a stream.
type volumeChecker struct {
	at int64
}

func (c *volumeChecker) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		want := volumeBlock[c.at%int64(len(volumeBlock)):]
		n := min(len(want), len(p))
		if !bytes.Equal(p[:n], want[:n]) {
			return written, fmt.Errorf("%w: in the %d bytes behind byte %d", errVolume, n, c.at)
		}
		p, written, c.at = p[n:], written+n, c.at+int64(n)
	}
	return written, nil
}

// volumeService takes streams at /up and sends them at /down; n in the query is
// the length, and chunked whether it is kept secret.
type volumeService struct {
	*httptest.Server
	taken, given atomic.Int64 // bytes
	hold         chan struct{}
}

func newVolumeService(t *testing.T) *volumeService {
	t.Helper()
	s := &volumeService{hold: make(chan struct{})}
	s.Server = cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		switch r.URL.Path {
		case "/up":
			s.take(w, r)
		case "/held": // takes nothing until it is told to
			<-s.hold
			s.take(w, r)
		case "/down":
			if r.URL.Query().Get("chunked") == "" {
				w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
			}
			_, _ = io.CopyBuffer(struct{ io.Writer }{w}, &volumeReader{length: n, delivered: &s.given}, make([]byte, 64<<10))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *volumeService) take(w http.ResponseWriter, r *http.Request) {
	checker := &volumeChecker{}
	_, err := io.CopyBuffer(checker, struct{ io.Reader }{r.Body}, make([]byte, 64<<10))
	s.taken.Store(checker.at)
	_, _ = fmt.Fprintf(w, "%d %d %v", checker.at, r.ContentLength, err)
}

// volumeStage is a gateway in front of such a service, once with TLS.
type volumeStage struct {
	*gatewaytest.Gateway
	service *volumeService
	token   string
	agent   *http.Client
}

func newVolumeStage(t *testing.T, protocols *http.Protocols, env ...string) *volumeStage {
	t.Helper()
	s := &volumeStage{service: newVolumeService(t)}
	client := gatewaytest.NewClient("worker", "svc")
	s.Gateway = gatewaytest.Start(t, gatewaytest.Options{Env: env, Config: fileOf([]gatewaytest.Credentials{client},
		`{name: svc, path: /svc, upstreams: [`+s.service.URL+`], scopes: [svc], strip_prefix: true, max_body: 0}`)})
	s.token = s.Token(client)
	transport := &http.Transport{Protocols: protocols, DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10}
	t.Cleanup(transport.CloseIdleConnections)
	s.agent = &http.Client{Transport: transport}
	return s
}

func (s *volumeStage) send(ctx context.Context, method, path string, body io.Reader, length int64) (*http.Response, error) {
	request := s.Request(method, path, body).WithContext(ctx)
	request.ContentLength = length
	request.Header.Set("Authorization", "Bearer "+s.token)
	return s.agent.Do(request)
}

// watchMemory returns a function that ends the watch and returns by how much the
// resident memory was larger at most than now.
func (s *volumeStage) watchMemory() func() int64 {
	before, most := s.Memory(), int64(0)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for pace := time.NewTicker(10 * time.Millisecond); ; {
			most = max(most, s.Memory()-before)
			select {
			case <-quit:
				pace.Stop()
				return
			case <-pace.C:
			}
		}
	}()
	return func() int64 { close(quit); <-done; return most }
}

// stream sends size bytes up or down and checks that they arrive.
func (s *volumeStage) stream(t *testing.T, name, up string, size, declared int64) {
	t.Helper()
	begin, grown := time.Now(), s.watchMemory()
	var err error
	if up != "" {
		err = s.up(t, up, size, declared)
	} else {
		err = s.down(t, size, declared < 0)
	}
	memory := grown()
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if memory > volumeMemory() {
		t.Errorf("%s: the gateway grew by %d MiB, want %d at most", name, memory>>20, volumeMemory()>>20)
	}
	took := time.Since(begin)
	t.Logf("%s: %d MiB in %v, %.0f MiB/s; the gateway grew by %.1f MiB at most", name, size>>20, took.Round(time.Millisecond),
		float64(size>>20)/took.Seconds(), float64(memory)/(1<<20))
}

func (s *volumeStage) up(t *testing.T, path string, size, declared int64) error {
	response, err := s.send(t.Context(), http.MethodPut, path, io.NopCloser(&volumeReader{length: size}), declared)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if want := fmt.Sprint(size, declared, nil); string(text) != want {
		return fmt.Errorf("the service got %q, want %q", text, want)
	}
	return nil
}

func (s *volumeStage) down(t *testing.T, size int64, chunked bool) error {
	path := fmt.Sprintf("/svc/down?n=%d", size)
	if chunked {
		path += "&chunked=1"
	}
	response, err := s.send(t.Context(), http.MethodGet, path, nil, 0)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	checker := &volumeChecker{}
	_, err = io.CopyBuffer(checker, struct{ io.Reader }{response.Body}, make([]byte, 64<<10))
	if err == nil && (checker.at != size || (response.ContentLength < 0) != chunked) {
		err = fmt.Errorf("%d bytes came with the length %d, want %d", checker.at, response.ContentLength, size)
	}
	return err
}

// TestVolume streams large bodies both ways: the size of a body has nothing to do
// with the memory it takes.
func TestVolume(t *testing.T) {
	if cuttest.Current() == cuttest.Bytes {
		t.Skip("with bytes cut: 200 MiB byte by byte take four minutes a way")
	}
	t.Parallel()
	size := volumeSize()
	for name, protocols := range map[string]*http.Protocols{"HTTP/1.1": only((*http.Protocols).SetHTTP1), "HTTP/2": only((*http.Protocols).SetUnencryptedHTTP2)} {
		s := newVolumeStage(t, protocols, "SNOWGATE_H2C=true")
		if err := s.down(t, 1<<20, false); err != nil { // whatever it needs once
			t.Fatal(err)
		}
		s.stream(t, name+" up with a length", "/svc/up", size, size)
		s.stream(t, name+" up in chunks", "/svc/up", size, -1)
		s.stream(t, name+" down with a length", "", size, size)
		s.stream(t, name+" down in chunks", "", size, -1)
	}
}

// stalled returns what counted has come to when it does not go on any more.
func stalled(t *testing.T, what string, counted *atomic.Int64) int64 {
	t.Helper()
	last, same := int64(-1), 0
	gatewaytest.Eventually(t, 20*time.Second, what+" stalls", func() bool {
		if now := counted.Load(); now != last || now == 0 {
			last, same = now, 0
		}
		same++
		return same > 60
	})
	return last
}

// TestVolumeOfSlowPeers: who does not take what is sent to him holds up the
// sender, and costs no memory.
func TestVolumeOfSlowPeers(t *testing.T) {
	t.Parallel()
	const size, buffered = 256 << 20, 64 << 20 // buffered: by the sockets of the system, four of them
	for name, protocols := range map[string]*http.Protocols{"HTTP/1.1": only((*http.Protocols).SetHTTP1), "HTTP/2": only((*http.Protocols).SetUnencryptedHTTP2)} {
		s := newVolumeStage(t, protocols, "SNOWGATE_H2C=true")
		grown := s.watchMemory()
		response, err := s.send(t.Context(), http.MethodGet, fmt.Sprintf("/svc/down?n=%d", size), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		given := stalled(t, name+" down", &s.service.given)
		checker := &volumeChecker{}
		_, err = io.Copy(checker, response.Body)
		_ = response.Body.Close()
		if given > buffered || err != nil || checker.at != size {
			t.Errorf("%s down: %d MiB were on their way to a client that takes nothing; afterwards %d bytes came, %v", name, given>>20, checker.at, err)
		}

		var sent atomic.Int64
		done := make(chan string, 1)
		go func() {
			response, err := s.send(t.Context(), http.MethodPut, "/svc/held", io.NopCloser(&volumeReader{length: size, delivered: &sent}), size)
			if err != nil {
				done <- err.Error()
				return
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			done <- string(text)
		}()
		taken := stalled(t, name+" up", &sent)
		close(s.service.hold)
		if got := <-done; taken > buffered || !strings.HasPrefix(got, fmt.Sprint(size, " ")) || !strings.HasSuffix(got, "<nil>") {
			t.Errorf("%s up: %d MiB were on their way to a service that takes nothing; afterwards it got %s", name, taken>>20, got)
		}
		if memory := grown(); memory > volumeMemory() {
			t.Errorf("%s: the gateway grew by %d MiB, want %d at most", name, memory>>20, volumeMemory()>>20)
		} else {
			t.Logf("%s: %d and %d MiB were under way at most; the gateway grew by %.1f MiB", name, given>>20, taken>>20, float64(memory)/(1<<20))
		}
	}
}
