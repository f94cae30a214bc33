package logsink

import (
	"sync"

	"github.com/rs/zerolog"

	"snowgate/internal/panics"
)

// together is how many lines a [Deferred] formats at a time. The code that formats them is large:
// from the second line on, it is in the processor's caches.
const together = 32

// Limits of the queue while lines are being made: a number of lines and, beyond the first freely
// lines, a number of bytes of their [Weighty] fields.
const (
	mostPending = 4096
	mostHeld    = 4 << 20
	freely      = 2 * together // not weighed: usually there are no more
)

// Weighty is implemented by fields that hold much memory until their line is formatted.
type Weighty interface {
	// Weight returns that memory, in bytes, roughly.
	Weight() int
}

// Deferred formats lines later, several at a time. [Sink.Deferred] makes one. It is safe for
// concurrent use.
type Deferred struct {
	sink    *Sink
	logger  zerolog.Logger
	message string

	making sync.Mutex // held while lines are formatted; guards spare
	spare  []saying   // empty; becomes the next pending

	mu      sync.Mutex
	pending []saying
	held    int // bytes of the weighed lines
	closed  bool
}

// saying is a line that is not formatted yet.
type saying struct {
	level  zerolog.Level
	fields zerolog.LogObjectMarshaler
}

// Deferred returns a Deferred whose lines have the given message, like lines of logger. It passes
// the lines to [Sink.Batched], whatever the output of logger. A sink has at most one Deferred.
func (s *Sink) Deferred(logger zerolog.Logger, message string) *Deferred {
	d := &Deferred{sink: s, logger: logger.Output(s.Batched()), message: message}
	s.deferred.Store(d)
	return d
}

// Add has a line made with fields: by whoever adds the last of some, or before the sink writes; at
// once if its level is error or above. fields must not change any more. Add drops a line below the
// level of the logger, and a line that finds the queue full, which [Sink.Lost] counts. It then
// returns false, and fields belong to the caller again.
func (d *Deferred) Add(level zerolog.Level, fields zerolog.LogObjectMarshaler) bool {
	if level < d.logger.GetLevel() {
		return false
	}
	d.mu.Lock()
	if !d.admit(fields) {
		d.mu.Unlock()
		d.sink.lose()
		return false
	}
	d.pending = append(d.pending, saying{level, fields})
	count, closed := len(d.pending), d.closed
	d.mu.Unlock()
	switch {
	case closed, level >= zerolog.ErrorLevel, count%together == 0:
		d.flush()
	case count == 1:
		signal(d.sink.wake)
	}
	return true
}

// admit reports whether there is room for fields. The caller holds mu.
func (d *Deferred) admit(fields zerolog.LogObjectMarshaler) bool {
	if len(d.pending) < freely {
		return true
	}
	weight := 0
	if weighty, ok := fields.(Weighty); ok {
		weight = weighty.Weight()
	}
	if len(d.pending) >= mostPending || d.held+weight > mostHeld {
		return false
	}
	d.held += weight
	return true
}

// close makes the waiting lines, and formats later lines at once.
func (d *Deferred) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.flush()
}

// flush formats the waiting lines. When it returns, these lines are in the sink, and so are lines
// that another goroutine was formatting.
func (d *Deferred) flush() {
	d.making.Lock()
	defer d.making.Unlock()
	d.mu.Lock()
	pending := d.pending
	d.pending, d.spare, d.held = d.spare, nil, 0
	d.mu.Unlock()
	for _, one := range pending {
		d.say(one)
	}
	clear(pending)
	if cap(pending) <= 8*together { // a larger one is rare and not kept
		d.spare = pending[:0]
	}
}

// say formats one line. If that panics, it logs the panic instead: the panic is not the fault of
// the goroutine that happens to format the line.
func (d *Deferred) say(one saying) {
	defer func() {
		if value := recover(); value != nil {
			p := panics.Caught(panics.Log, value) // telling it would wait for this line
			d.logger.Error().Timestamp().Str("line", d.message).Str("stack", p.Stack).Msgf("a line of the log cannot be made: %v", p)
		}
	}()
	d.logger.WithLevel(one.level).EmbedObject(one.fields).Msg(d.message)
}
