// Package logsink writes log lines without making those who log wait for
// whoever reads the log.
//
// Lines are of two kinds. Lines of the gateway itself go to [Sink.Write], which returns when the
// line is written: nothing is lost if the process breaks the next moment. The lines of requests are
// handed to [Sink.Batched], which only notes them: they are written together, when there are many
// or after a tenth of a second. The fields of such a line may go to a [Deferred] instead, which
// formats several lines at a time: one after the other they cost less than each by itself. All stay
// in the order in which they came.
//
// One goroutine writes; it sleeps while there is nothing to write. If nobody
// reads what is written (a full pipe, a terminal that was stopped), the writing
// stands still and nothing else does: lines wait, up to a bound; beyond it they
// are lost and counted, and how many is the first thing that is written when the
// reading goes on. Lines of the first kind have some room of their own within
// the bound, so that a flood of requests does not push them out.
package logsink

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"snowgate/internal/panics"
)

// Defaults of [Options].
const (
	DefaultDelay    = 100 * time.Millisecond
	DefaultBatch    = 64 << 10 // capacity of a pipe on Linux
	DefaultLimit    = 4 << 20
	DefaultPatience = 100 * time.Millisecond
)

// Options is the configuration of [New]. The zero value is ready to use.
type Options struct {
	// Delay is the longest time that a line waits for others. Default: 100 ms.
	Delay time.Duration
	// Batch is the number of bytes that are written without waiting for more. Default: 64 KiB.
	Batch int
	// Limit is the maximum number of bytes that wait during a write. The write itself has at most
	// as many. Default: 4 MiB.
	Limit int
	// Patience limits how long [Sink.Write] waits for its line. [Sink.Close] waits ten times as
	// long. Default: 100 ms.
	Patience time.Duration
}

// Sink is a destination for log lines. [New] makes one. It is safe for concurrent use.
type Sink struct {
	out      io.Writer
	opts     Options
	deferred atomic.Pointer[Deferred] // nil: none

	mu      sync.Mutex
	waiting []byte        // whole lines
	spare   []byte        // empty; becomes the next waiting
	told    chan struct{} // closed when the waiting lines are written; nil: nobody waits
	unsaid  uint64        // lost lines that the log does not mention yet
	closed  bool

	lost    atomic.Uint64
	stalled atomic.Bool   // a Write has given up waiting, and nothing was written since
	wake    chan struct{} // something waits
	hurry   chan struct{} // do not wait for more lines
	closing chan struct{}
	ended   chan struct{}
}

// New returns a sink that writes to out in batches. Each batch is one Write of whole lines. The
// caller must close the sink after use.
func New(out io.Writer, o Options) *Sink {
	o.Delay = cmp.Or(o.Delay, DefaultDelay)
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	o.Limit = cmp.Or(o.Limit, DefaultLimit)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	s := &Sink{
		out: out, opts: o,
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		closing: make(chan struct{}), ended: make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		panics.Keep(context.Background(), panics.Log, s.run)
	}()
	return s
}

// Write takes one line, including its line feed, and returns when the line is written. It gives up
// after Patience. Until the next successful write, further calls then do not wait at all. Such a
// line is written later, or counted by [Sink.Lost]. Write never returns an error.
func (s *Sink) Write(line []byte) (int, error) {
	written := s.urgent(line)
	if written == nil || s.stalled.Load() {
		return len(line), nil
	}
	patience := time.NewTimer(s.opts.Patience)
	defer patience.Stop()
	select {
	case <-written:
	case <-patience.C:
		s.stalled.Store(true)
	}
	return len(line), nil
}

// Batched returns a writer for lines that may be written later. It only queues them, and never
// waits. Lines of level error and above make the sink write at once.
func (s *Sink) Batched() zerolog.LevelWriter { return batched{s} }

type batched struct{ sink *Sink }

// Write implements [io.Writer].
func (b batched) Write(line []byte) (int, error) {
	return b.WriteLevel(zerolog.NoLevel, line)
}

// WriteLevel implements [zerolog.LevelWriter].
func (b batched) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	s := b.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.add(line, s.opts.Limit-s.opts.Limit/8) {
		return len(line), nil
	}
	if len(s.waiting) >= s.opts.Batch || level >= zerolog.ErrorLevel && level < zerolog.NoLevel {
		signal(s.hurry)
	}
	return len(line), nil
}

// urgent queues a line. It returns a channel that is closed when the line is written, or nil if the
// line is lost.
func (s *Sink) urgent(line []byte) <-chan struct{} {
	s.makeDeferred()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.add(line, s.opts.Limit) {
		return nil
	}
	if s.told == nil {
		s.told = make(chan struct{})
	}
	signal(s.hurry)
	return s.told
}

// add queues a line, unless that would exceed limit. The caller holds mu.
func (s *Sink) add(line []byte, limit int) bool {
	if s.closed || len(s.waiting)+len(line) > limit {
		s.unsaid++
		s.lost.Add(1)
		return false
	}
	if len(s.waiting) == 0 {
		signal(s.wake)
	}
	s.waiting = append(s.waiting, line...)
	return true
}

// lose counts a line that was lost before it was formatted.
func (s *Sink) lose() {
	s.mu.Lock()
	s.unsaid++
	s.mu.Unlock()
	s.lost.Add(1)
	signal(s.wake)
}

// Lost returns the number of lines lost so far.
func (s *Sink) Lost() uint64 { return s.lost.Load() }

// Close writes the waiting lines and ends the goroutine of the sink. If the output is stuck, Close
// gives up after ten times Patience. Later lines are lost. Close may be called more than once.
func (s *Sink) Close() {
	if d := s.deferred.Load(); d != nil {
		d.close()
	}
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	patience := time.NewTimer(10 * s.opts.Patience)
	defer patience.Stop()
	select {
	case <-s.ended:
	case <-patience.C:
	}
}

// run writes until the sink is closed.
func (s *Sink) run(context.Context) {
	delay := time.NewTimer(s.opts.Delay)
	defer delay.Stop()
	for {
		select {
		case <-s.wake:
		case <-s.closing:
			s.flush()
			return
		}
		delay.Reset(s.opts.Delay)
		select {
		case <-delay.C:
		case <-s.hurry:
		case <-s.closing:
		}
		s.flush()
	}
}

// makeDeferred formats the waiting lines of the Deferred.
func (s *Sink) makeDeferred() {
	if d := s.deferred.Load(); d != nil {
		d.flush()
	}
}

// flush writes the waiting lines, followed by the number of lines lost after them.
func (s *Sink) flush() {
	s.makeDeferred()
	s.mu.Lock()
	batch, told, unsaid := s.waiting, s.told, s.unsaid
	s.waiting, s.spare, s.told, s.unsaid = s.spare, nil, nil, 0
	s.mu.Unlock()
	if unsaid > 0 {
		batch = append(batch, notice(unsaid)...)
	}
	if len(batch) == 0 {
		return
	}
	if n, err := s.out.Write(batch); err != nil {
		s.lost.Add(uint64(bytes.Count(batch[n:], []byte{'\n'}))) // the log itself cannot mention these
	}
	s.stalled.Store(false)
	if told != nil {
		close(told)
	}
	if cap(batch) > 8*s.opts.Batch {
		return // such a batch is rare; its memory is not kept
	}
	s.mu.Lock()
	s.spare = batch[:0]
	s.mu.Unlock()
}

// notice returns the line that reports lost lines.
func notice(lines uint64) []byte {
	var line bytes.Buffer
	logger := zerolog.New(&line)
	logger.Warn().Timestamp().Uint64("lost", lines).Msg("log lines were lost here: they were not read as fast as they were written")
	return line.Bytes()
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // signaled already
	}
}
