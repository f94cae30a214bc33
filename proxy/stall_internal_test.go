package proxy

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// side is one side of a WebSocket: what it says comes from says, and what it hears goes to hears.
type side struct {
	says  *io.PipeReader
	hears *io.PipeWriter
}

// newSide returns a side, and the other ends of what it says and hears.
func newSide() (s side, says *io.PipeWriter, hears *io.PipeReader) {
	s.says, says = io.Pipe()
	hears, s.hears = io.Pipe()
	return s, says, hears
}

func (s side) Read(p []byte) (int, error)  { return s.says.Read(p) }
func (s side) Write(p []byte) (int, error) { return s.hears.Write(p) }
func (s side) CloseWrite() error           { return s.hears.Close() }
func (s side) Close() error                { _ = s.says.Close(); return s.hears.Close() }

// TestStall: a WebSocket ends when one side waits for the other in vain for a minute, and not because
// both are silent.
func TestStall(t *testing.T) {
	for name, test := range map[string]struct {
		play func(client, service *io.PipeWriter)
		want time.Duration // until the end; 0: it goes on
	}{
		"both are silent": {func(_, _ *io.PipeWriter) {}, 0},
		"the service does not end": {func(client, _ *io.PipeWriter) {
			time.Sleep(time.Hour)
			_ = client.Close()
		}, time.Hour + stallTime},
		"the service goes on": {func(client, service *io.PipeWriter) {
			_ = client.Close()
			for range 10 {
				time.Sleep(stallTime - time.Second)
				_, _ = service.Write([]byte("x"))
			}
		}, 10*(stallTime-time.Second) + stallTime},
		"the service takes nothing": {func(client, _ *io.PipeWriter) {
			time.Sleep(time.Hour)
			_, _ = client.Write([]byte("flood")) // nobody reads
		}, time.Hour + stallTime},
		"both end": {func(client, service *io.PipeWriter) {
			_ = client.Close()
			time.Sleep(time.Second)
			_ = service.Close()
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, fromClient, toClient := newSide()
				service, fromService, _ := newSide()
				go func() { _, _ = io.Copy(io.Discard, toClient) }()
				begun, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					relay(client, client, service)
					ended <- time.Since(begun)
				}()
				go test.play(fromClient, fromService)
				select {
				case took := <-ended:
					if took != test.want {
						t.Errorf("it ended after %v, want %v", took, test.want)
					}
				case <-time.After(24 * time.Hour):
					if test.want != 0 {
						t.Error("it goes on")
					}
					_, _ = fromClient.Close(), fromService.CloseWithError(io.ErrUnexpectedEOF)
					<-ended
				}
			})
		})
	}
}
