package integration_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// raider is a connection in HTTP/2 that keeps no rule but the form of frames.
type raider struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	ended  chan struct{} // the gateway has closed the connection

	responses, resets, goodbyes atomic.Int64 // frames that came
	pongs                       chan struct{}
}

// raid opens a connection and reads what comes.
func (s *besieged) raid() *raider {
	s.t.Helper()
	r := &raider{t: s.t, conn: s.Dial(), ended: make(chan struct{}), pongs: make(chan struct{}, 1000)}
	_ = r.conn.SetDeadline(time.Now().Add(time.Minute))
	r.framer = http2.NewFramer(r.conn, r.conn)
	r.hpack = hpack.NewEncoder(&r.block)
	if _, err := io.WriteString(r.conn, http2.ClientPreface); err != nil {
		s.t.Fatal(err)
	}
	if err := r.framer.WriteSettings(); err != nil {
		s.t.Fatal(err)
	}
	go r.listen()
	return r
}

func (r *raider) listen() {
	defer close(r.ended)
	for {
		frame, err := r.framer.ReadFrame()
		switch frame.(type) {
		case *http2.HeadersFrame:
			r.responses.Add(1)
		case *http2.RSTStreamFrame:
			r.resets.Add(1)
		case *http2.GoAwayFrame:
			r.goodbyes.Add(1)
		case *http2.PingFrame:
			r.pongs <- struct{}{}
		}
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return
		}
	}
}

// request returns the header block of a request for path, with further fields.
func (r *raider) request(path string, fields ...hpack.HeaderField) []byte {
	r.block.Reset()
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "h"}, {Name: ":path", Value: path},
	}, fields...) {
		if err := r.hpack.WriteField(field); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.block.Bytes()
}

// besieged is a gateway under attack in HTTP/2.
type besieged struct {
	*gatewaytest.Gateway
	t       *testing.T
	token   string
	held    atomic.Int64 // requests at the service now
	most    atomic.Int64 // at one time
	arrived atomic.Int64
	before  int64 // memory
}

// besiege starts a gateway with a service that answers /slow only when it is
// given up.
func besiege(t *testing.T) *besieged {
	t.Helper()
	s := &besieged{t: t}
	service := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.arrived.Add(1)
		if strings.HasPrefix(r.URL.Path, "/slow") {
			now := s.held.Add(1)
			defer s.held.Add(-1)
			for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
			}
			<-r.Context().Done()
		}
	}))
	t.Cleanup(service.Close)
	client := gatewaytest.NewClient("worker", "read")
	s.Gateway = gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML + `routes:
  - {name: slow, path: /slow, upstreams: ["` + service.URL + `"], public: true}
  - {name: canary, path: /canary, upstreams: ["` + service.URL + `"], scopes: [read]}
`,
		Env: append([]string{"SNOWGATE_H2C=true"}, patientEnv...),
	})
	s.token = s.Token(client)
	s.canary()
	s.before = s.Memory()
	return s
}

// canary is a good request in the middle of it.
func (s *besieged) canary() {
	s.t.Helper()
	if got := s.Get("/canary", s.token); got.StatusCode != http.StatusOK {
		s.t.Errorf("the canary = %d %s, want 200", got.StatusCode, got.Body)
	}
}

// withstand keeps asking for the canary while attack runs, on several connections at
// the same time, and then looks at what is left of it: the memory and the
// goroutines of the gateway are bounded whatever the number of frames was.
func (s *besieged) withstand(connections int, attack func(r *raider)) {
	s.t.Helper()
	var attacking sync.WaitGroup
	for range connections {
		r := s.raid()
		attacking.Go(func() { attack(r) })
	}
	over := make(chan struct{})
	go func() { attacking.Wait(); close(over) }()
	var most float64
	var memory int64
	for asked := 0; ; asked++ {
		s.canary()
		most = max(most, s.Metrics().Sum("go_goroutines"))
		memory = max(memory, s.Memory())
		select {
		case <-over:
			s.t.Logf("%d canaries, at most %.0f goroutines, %d MB more memory", asked+1, most, (memory-s.before)>>20)
			s.bounded(connections, most, memory)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const (
	raidMemory     = 128 << 20 // more than before
	raidGoroutines = 100 * 6   // per connection: 100 streams, and what one request needs
)

func (s *besieged) bounded(connections int, goroutines float64, memory int64) {
	s.t.Helper()
	if limit := float64(connections*raidGoroutines + 200); goroutines > limit {
		s.t.Errorf("there were %.0f goroutines, want %.0f at most", goroutines, limit)
	}
	if memory > s.before+raidMemory*gatewaytest.MemoryScale() {
		s.t.Errorf("memory grew from %d to %d MB", s.before>>20, memory>>20)
	}
	gatewaytest.Eventually(s.t, 20*time.Second, "the service is left alone", func() bool { return s.held.Load() == 0 })
	gatewaytest.Eventually(s.t, 20*time.Second, "the goroutines end", func() bool { return s.Metrics().Sum("go_goroutines") < 200 })
	s.canary()
}

// TestSecurityRapidReset: CVE-2023-44487. Requests that are taken back at once do not
// pile up, neither in the gateway nor at the service.
func TestSecurityRapidReset(t *testing.T) {
	s := besiege(t)
	const connections, hasty, waves, wave = 4, 2_000, 10, 3 * mostStreams
	s.withstand(connections, func(r *raider) {
		defer r.conn.Close()
		stream := uint32(1)
		for range waves { // which get to the service, as far as they are let
			first := stream
			for ; stream < first+2*wave; stream += 2 {
				r.open(stream)
			}
			r.wait()
			for taken := first; taken < stream; taken += 2 {
				_ = r.framer.WriteRSTStream(taken, http2.ErrCodeCancel)
			}
		}
		for range hasty { // which do not
			r.open(stream)
			_ = r.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
			stream += 2
		}
		r.wait()
	})
	// One that was taken back may be at the service still when the next begins.
	if most := s.most.Load(); most == 0 || most > 2*connections*mostStreams {
		t.Errorf("the service had %d requests at one time, want some, and %d at most", most, 2*connections*mostStreams)
	}
	t.Logf("the service saw %d of %d requests, %d at one time", s.arrived.Load(), connections*(hasty+waves*wave), s.most.Load())
}

// open begins a request that the service would answer never.
func (r *raider) open(stream uint32) {
	_ = r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.request("/slow"), EndStream: true, EndHeaders: true})
}

// wait returns when the gateway has read everything so far, or closed the
// connection.
func (r *raider) wait() {
	_ = r.framer.WritePing(false, [8]byte{})
	select {
	case <-r.pongs:
	case <-r.ended:
	}
}

// mostStreams is what the gateway allows one connection (README).
const mostStreams = 100

// TestSecurityContinuationFlood: CVE-2023-45288. A header block that never ends is
// given up.
func TestSecurityContinuationFlood(t *testing.T) {
	s := besiege(t)
	const most = 64 << 20
	s.withstand(4, func(r *raider) {
		defer r.conn.Close()
		if err := r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.request("/slow"), EndStream: true}); err != nil {
			return
		}
		filler := strings.Repeat("x", 8000)
		for sent := 0; sent < most; {
			r.block.Reset()
			_ = r.hpack.WriteField(hpack.HeaderField{Name: "x-filler", Value: filler, Sensitive: true}) // never in the table
			if r.framer.WriteContinuation(1, false, r.block.Bytes()) != nil {
				<-r.ended
				return
			}
			sent += r.block.Len()
		}
		t.Errorf("%d MB of one header block were taken", most>>20)
	})
	if s.most.Load() > 0 {
		t.Errorf("the service was asked %d times at once", s.most.Load())
	}
}

// TestSecurityHPACKBomb: a table of 4 KB that unfolds to megabytes is refused by the
// size that it unfolds to.
func TestSecurityHPACKBomb(t *testing.T) {
	s := besiege(t)
	s.withstand(4, func(r *raider) {
		defer r.conn.Close()
		bomb := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("x", 3900)}
		for stream := uint32(1); stream < 2*50; stream += 2 {
			// Its first use puts it into the table; from then on it costs a byte.
			fields := make([]hpack.HeaderField, 12_000)
			for i := range fields {
				fields[i] = bomb
			}
			block := r.request("/slow", fields...)
			first, rest := block[:min(len(block), 16_000)], block[min(len(block), 16_000):]
			if r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: true, EndHeaders: len(rest) == 0}) != nil {
				break
			}
			if len(rest) > 0 && r.framer.WriteContinuation(stream, true, rest) != nil {
				break
			}
		}
		select {
		case <-r.ended:
		case <-time.After(time.Second): // refused stream by stream
		}
		if r.responses.Load()+r.resets.Load()+r.goodbyes.Load() == 0 {
			t.Error("the bombs were neither answered nor refused")
		}
	})
	if s.most.Load() > 0 {
		t.Errorf("the service was asked %d times at once", s.most.Load())
	}
}
