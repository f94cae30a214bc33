package logsink_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"snowgate/internal/logsink"
)

// saying is the fields of a line. It counts how often it is formatted.
type saying struct {
	number int
	said   *atomic.Int64
	f      func() // called during formatting
}

func (s saying) MarshalZerologObject(e *zerolog.Event) {
	e.Int("n", s.number)
	if s.said != nil {
		s.said.Add(1)
	}
	if s.f != nil {
		s.f()
	}
}

// newDeferred returns the parts of the test in a synctest bubble, which ends with the test.
func newDeferred(t *testing.T, o logsink.Options) (*reader, *logsink.Sink, *logsink.Deferred) {
	t.Helper()
	r := new(reader)
	s := logsink.New(r, o)
	t.Cleanup(s.Close)
	return r, s, s.Deferred(zerolog.New(nil).Level(zerolog.InfoLevel), "x")
}

func line(level string, n int) string {
	return fmt.Sprintf(`{"level":%q,"n":%d,"message":"x"}`+"\n", level, n)
}

func TestDeferredLinesAreWrittenWithinTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, d := newDeferred(t, logsink.Options{})
		var said atomic.Int64
		time.Sleep(time.Hour) // idle
		if !d.Add(zerolog.InfoLevel, saying{number: 1, said: &said}) {
			t.Error("there shall be no line, although its level is not below that of the logger")
		}
		if d.Add(zerolog.DebugLevel, saying{number: 2, said: &said}) {
			t.Error("there shall be a line below the level")
		}
		d.Add(zerolog.WarnLevel, saying{number: 3, said: &said})
		time.Sleep(logsink.DefaultDelay - 1)
		synctest.Wait()
		r.want(t, "before the delay is over")
		if said.Load() != 0 {
			t.Error("a line was made although nothing hurries")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		r.want(t, "after it", line("info", 1)+line("warn", 3))
		if said.Load() != 2 {
			t.Errorf("%d lines were made, want two", said.Load())
		}
	})
}

// TestDeferredLinesAreMadeTogether: a number of lines is formatted together without waiting for the
// delay, so that their fields are not kept for long.
func TestDeferredLinesAreMadeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, d := newDeferred(t, logsink.Options{})
		var said atomic.Int64
		for n := 1; n <= 100; n++ {
			d.Add(zerolog.InfoLevel, saying{number: n, said: &said})
			if want := int64(n / 32 * 32); said.Load() != want {
				t.Fatalf("%d lines are made after %d were added, want %d", said.Load(), n, want)
			}
		}
	})
}

func TestDeferredErrorsHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, d := newDeferred(t, logsink.Options{})
		d.Add(zerolog.InfoLevel, saying{number: 1})
		d.Add(zerolog.ErrorLevel, saying{number: 2})
		synctest.Wait()
		r.want(t, "after an error", line("info", 1)+line("error", 2))
	})
}

func TestDeferredLinesKeepTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, d := newDeferred(t, logsink.Options{})
		d.Add(zerolog.InfoLevel, saying{number: 1})
		say(s, "a")
		d.Add(zerolog.InfoLevel, saying{number: 2})
		s.Close()
		r.want(t, "in order", line("info", 1)+"a\n", line("info", 2))
		d.Add(zerolog.InfoLevel, saying{number: 3})
		if s.Lost() != 1 {
			t.Errorf("%d lines were lost, want the one after Close", s.Lost())
		}
	})
}

// TestDeferredLineThatPanics: a line that cannot be formatted does not affect others.
func TestDeferredLineThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s, d := newDeferred(t, logsink.Options{})
		d.Add(zerolog.InfoLevel, saying{number: 1})
		d.Add(zerolog.InfoLevel, saying{number: 2, f: func() { panic("oh") }})
		d.Add(zerolog.InfoLevel, saying{number: 3})
		s.Close()
		got := strings.Join(r.got(), "")
		if !strings.HasPrefix(got, line("info", 1)) || !strings.HasSuffix(got, line("info", 3)) ||
			!strings.Contains(got, `"line":"x"`) || !strings.Contains(got, "a line of the log cannot be made: panic in log: a value of type string") {
			t.Errorf("written: %s", got)
		}
	})
}

// TestDeferredLinesAreWhole: many goroutines log many lines at once. No line is lost or repeated,
// and the lines of each goroutine stay in order.
func TestDeferredLinesAreWhole(t *testing.T) {
	const speakers, lines = 8, 2000
	var text bytes.Buffer
	s := logsink.New(&text, logsink.Options{Limit: 64 << 20})
	d := s.Deferred(zerolog.New(nil), "x")
	var all sync.WaitGroup
	for speaker := range speakers {
		all.Go(func() {
			for n := range lines {
				d.Add(zerolog.InfoLevel, saying{number: speaker*lines + n})
				if n%100 == 0 {
					say(s, "main")
				}
			}
		})
	}
	all.Wait()
	s.Close()
	next, heard := [speakers]int{}, 0
	for one := range strings.Lines(text.String()) {
		var n int
		if _, err := fmt.Sscanf(one, `{"level":"info","n":%d,"message":"x"}`, &n); err != nil {
			if one != "main\n" {
				t.Fatalf("a strange line: %q", one)
			}
			continue
		}
		if speaker := n / lines; next[speaker] != n%lines {
			t.Fatalf("speaker %d is heard with %d, want %d", speaker, n%lines, next[speaker])
		}
		next[n/lines]++
		heard++
	}
	if heard != speakers*lines || s.Lost() != 0 {
		t.Errorf("%d lines are heard and %d lost, want %d and none", heard, s.Lost(), speakers*lines)
	}
}

// heavy is fields that hold 32 KiB until they are formatted.
type heavy struct {
	saying
	text []byte
}

func (h *heavy) Weight() int { return len(h.text) }

// TestDeferredLinesThatWaitAreBounded: while a line is formatted, waiting lines are limited by
// number and by memory. Other lines are lost, belong to their caller again, and are counted one by
// one.
func TestDeferredLinesThatWaitAreBounded(t *testing.T) {
	for _, test := range []struct{ weight, most int }{{0, 4096}, {32 << 10, 64 + 128}} {
		const lines = 100_000
		makes, goOn := make(chan struct{}), make(chan struct{})
		s := logsink.New(io.Discard, logsink.Options{Limit: 64 << 20})
		d := s.Deferred(zerolog.New(nil), "x")
		var making sync.WaitGroup
		making.Go(func() { // the goroutine that adds an error formats it
			d.Add(zerolog.ErrorLevel, saying{f: func() { close(makes); <-goOn }})
		})
		<-makes
		var said, taken atomic.Int64
		var flushing sync.WaitGroup
		for range lines / 25 {
			flushing.Go(func() { // every 32nd waits until the line is formatted
				for range 25 {
					one := &heavy{saying{said: &said}, make([]byte, test.weight)}
					if d.Add(zerolog.InfoLevel, one) {
						taken.Add(1)
					}
				}
			})
		}
		// Each goroutine that waits to format lines has at most 24 left.
		least := uint64(lines - test.most - test.most/32*24)
		deadline := time.Now().Add(10 * time.Second)
		for s.Lost() < least && time.Now().Before(deadline) {
			runtime.Gosched()
		}
		lost := s.Lost()
		close(goOn)
		making.Wait()
		flushing.Wait()
		s.Close()
		if lost < least {
			t.Errorf("lines that keep %d bytes: %d were lost while one was made, want at least %d, as %d may wait", test.weight, lost, least, test.most)
		}
		if said.Load() != taken.Load() || uint64(taken.Load())+s.Lost() != lines {
			t.Errorf("%d lines: %d were taken, %d made and %d lost", lines, taken.Load(), said.Load(), s.Lost())
		}
	}
}

// BenchmarkDeferred measures the cost of a line that is formatted together with others.
func BenchmarkDeferred(b *testing.B) {
	s := logsink.New(io.Discard, logsink.Options{})
	defer s.Close()
	d := s.Deferred(zerolog.New(nil), "x")
	b.ReportAllocs()
	one := &saying{number: 1}
	for b.Loop() {
		d.Add(zerolog.InfoLevel, one)
	}
}
