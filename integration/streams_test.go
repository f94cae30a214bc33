package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

const (
	// cutWithin is how soon a stream ends with its token. The machine may be busy
	// with other tests, so it is asked of the usual one, and stallTime of each.
	cutWithin = time.Second
	// watchedAfter is when the gateway watches an exchange that is no WebSocket.
	watchedAfter = 500 * time.Millisecond
)

// ended is how a stream ended, and when.
type ended struct {
	name  string
	at    time.Time
	fault error // what is wrong with the way it ended
}

// openStreams opens a WebSocket, a stream of events and a long download on every
// gateway, and returns where their ends are told.
func (f *fleet) openStreams(download, token string) (ends chan ended, count int) {
	f.t.Helper()
	ends = make(chan ended, 3*len(f.gateways))
	for i, g := range f.gateways {
		f.openSocket(g, token, fmt.Sprintf("WebSocket at gateway %d", i), ends)
		for _, path := range []string{"/svc/events", download} {
			f.openBody(g, path, token, fmt.Sprintf("%s at gateway %d", path, i), ends)
		}
	}
	return ends, cap(ends)
}

func (f *fleet) openSocket(g *gatewaytest.Gateway, token, name string, ends chan<- ended) {
	f.t.Helper()
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, g.URL+"/svc/socket", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.CloseNow() })
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		f.t.Fatal(err)
	}
	if _, text, err := conn.Read(ctx); err != nil || string(text) != "hello" {
		f.t.Fatalf("the WebSocket echoes %q, %v", text, err)
	}
	go func() {
		_, _, err := conn.Read(ctx)
		end := ended{name: name, at: time.Now()}
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			end.fault = fmt.Errorf("ended with %w, want a close frame with status 1008", err)
		}
		ends <- end
	}()
}

func (f *fleet) openBody(g *gatewaytest.Gateway, path, token, name string, ends chan<- ended) {
	f.t.Helper()
	request := g.Request(http.MethodGet, path, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "text/event-stream")
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = response.Body.Close() })
	in := bufio.NewReader(response.Body)
	if _, err := in.ReadByte(); err != nil || response.StatusCode != http.StatusOK {
		f.t.Fatalf("%s = %d, %v", path, response.StatusCode, err)
	}
	go func() {
		_, err := io.Copy(io.Discard, in)
		end := ended{name: name, at: time.Now()}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			end.fault = fmt.Errorf("ended with %v, want an end in the middle", err)
		}
		ends <- end
	}()
}

// wantCut waits for the ends of streams whose token ended between since and told, when
// somebody was told that it has.
func (f *fleet) wantCut(what string, ends <-chan ended, count int, since, told time.Time) {
	f.t.Helper()
	var took []time.Duration // after told
	for range count {
		select {
		case end := <-ends:
			took = append(took, max(0, end.at.Sub(told)))
			if end.fault != nil {
				f.t.Errorf("%s: the %s %v", what, end.name, end.fault)
			}
			if early := since.Sub(end.at); early > 50*time.Millisecond {
				f.t.Errorf("%s: the %s ended %v before the token", what, end.name, early)
			}
			if late := end.at.Sub(told); late > cutWithin+stallTime {
				f.t.Errorf("%s: the %s ended %v after the token", what, end.name, late)
			}
		case <-time.After(time.Until(told) + 20*time.Second):
			f.t.Fatalf("%s: %d of %d streams go on", what, count-len(took), count)
		}
	}
	median := percentile(took, 50)
	if median > cutWithin {
		f.t.Errorf("%s: streams ended after p50 %v, want within %v", what, median, cutWithin)
	}
	f.t.Logf("%s: %d streams ended after p50 %v, p99 %v", what, count, median.Round(time.Microsecond), percentile(took, 99).Round(time.Microsecond))
}

// newDownload starts a service whose responses have no end.
func newDownload(t *testing.T) *httptest.Server {
	t.Helper()
	server := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000000")
		pace := time.NewTicker(20 * time.Millisecond)
		defer pace.Stop()
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			<-pace.C
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestStreamsEndWithTheirToken: whatever ends a token, and at whichever gateway,
// ends the streams that were opened with it at all of them.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	// All the streams must be open before the token ends, on a busy machine too.
	const ttl = 15 * time.Second
	brief := gatewaytest.NewClient("brief", "svc", "token_ttl: "+ttl.String())
	removed := gatewaytest.NewClient("removed", "svc")
	f := newFleetOf(t, fleetOptions{others: []gatewaytest.Credentials{brief, removed}, download: newDownload(t).URL})

	for _, way := range f.revocations() {
		token, survivor := f.token(), f.issue(1, removed)
		ends, count := f.openStreams("/svc/download", token)
		f.awaitWatched(ends)
		begin := time.Now()
		way.revoke(token)
		f.wantCut(way.name, ends, count, begin, time.Now())
		if way.others {
			f.wantAll(way.name+": a token that is not concerned", survivor, http.StatusOK)
		}
	}
	asked := time.Now()
	token := f.issue(0, brief)
	issued := time.Now()
	ends, count := f.openStreams("/svc/download", token)
	f.wantCut("expiry", ends, count, asked.Add(ttl), issued.Add(ttl))

	ends, count = f.openStreams("/svc/download", f.issue(0, removed))
	f.awaitWatched(ends)
	f.others = []gatewaytest.Credentials{brief}
	begin := time.Now()
	f.reload()
	f.wantCut("removal of the client", ends, count, begin, time.Now())
	for i, g := range f.gateways {
		if got := g.Metrics(); got.Sum("snowgate_watched_tokens") != 0 || got.Sum("snowgate_streams_cut_total") == 0 {
			t.Errorf("gateway %d watches %v tokens at the end and has cut %v streams", i, got.Sum("snowgate_watched_tokens"), got.Sum("snowgate_streams_cut_total"))
		}
	}
}

// awaitWatched returns when streams that were just opened are watched. None of
// them may have ended.
func (f *fleet) awaitWatched(ends <-chan ended) {
	f.t.Helper()
	select {
	case end := <-ends:
		f.t.Errorf("the %s ended before its token", end.name)
	case <-time.After(watchedAfter + 100*time.Millisecond):
	}
}
