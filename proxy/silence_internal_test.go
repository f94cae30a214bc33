package proxy

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// endingReads is the response writer of a connection whose reads fail when their
// deadline has passed.
type endingReads struct {
	http.ResponseWriter
	timer *time.Timer
	to    *io.PipeWriter
}

func (d *endingReads) SetReadDeadline(at time.Time) error {
	if d.timer != nil {
		d.timer.Stop()
	}
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() { _ = d.to.CloseWithError(context.DeadlineExceeded) })
	}
	return nil
}

// TestSilentStreamIsNotCut: a client that is answered may say nothing for as long
// as it likes, and one that is not may not.
func TestSilentStreamIsNotCut(t *testing.T) {
	for _, answered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			from, to := io.Pipe()
			connection := &endingReads{to: to}
			b := &clientBody{
				source: from, control: http.NewResponseController(connection), idle: 30 * time.Second,
				timer: new(exchangeTimers).lend(time.Hour, new(waiter)),
			}
			defer b.timer.end()
			b.back = sync.NewCond(&b.mu)
			var saying sync.WaitGroup
			defer saying.Wait()
			saying.Go(func() {
				for range 3 {
					_, _ = to.Write([]byte("x"))
					time.Sleep(time.Hour) // the silence, in no time
				}
				_ = to.Close()
			})
			buffer := make([]byte, 1)
			if _, err := b.Read(buffer); err != nil {
				t.Fatal(err)
			}
			if answered {
				go func() {
					time.Sleep(time.Second) // while the next Read waits
					b.answering()
				}()
			}
			n := 1
			var err error
			for ; err == nil; n++ {
				_, err = b.Read(buffer)
			}
			if answered && (n != 4 || err != io.EOF) {
				t.Errorf("a client that is answered got through %d messages, and then %v", n-1, err)
			}
			if !answered && (n != 2 || err != context.DeadlineExceeded) {
				t.Errorf("a client that is not answered got through %d messages, and then %v, want its time to end", n-1, err)
			}
		})
	}
}
