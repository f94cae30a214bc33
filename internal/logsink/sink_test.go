package logsink_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"snowgate/internal/logsink"
)

// reader is the output of a sink. It accepts a batch only when the test allows it.
type reader struct {
	mu      sync.Mutex
	batches []string
	gate    chan struct{} // nil: everything is accepted at once
}

func (r *reader) Write(batch []byte) (int, error) {
	if r.gate != nil {
		<-r.gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, string(batch))
	return len(batch), nil
}

func (r *reader) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}

func (r *reader) want(t *testing.T, when string, batches ...string) {
	t.Helper()
	if got := r.got(); !slices.Equal(got, batches) {
		t.Errorf("%s: written %q, want %q", when, got, batches)
	}
}

func say(w io.Writer, lines ...string) {
	for _, line := range lines {
		_, _ = w.Write([]byte(line + "\n"))
	}
}

func TestLinesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		s := logsink.New(&r, logsink.Options{})
		defer s.Close()
		time.Sleep(time.Hour) // idle; a sink that polls would do so now
		say(s.Batched(), "a", "b")
		time.Sleep(logsink.DefaultDelay - time.Nanosecond)
		say(s.Batched(), "c")
		synctest.Wait()
		r.want(t, "before the delay is over")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		r.want(t, "after it", "a\nb\nc\n")
		say(s.Batched(), "d")
		time.Sleep(logsink.DefaultDelay)
		synctest.Wait()
		r.want(t, "after another one", "a\nb\nc\n", "d\n")
	})
}

func TestFullBatchIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		s := logsink.New(&r, logsink.Options{Batch: 6})
		defer s.Close()
		say(s.Batched(), "a", "b")
		synctest.Wait()
		r.want(t, "with room for more")
		say(s.Batched(), "c")
		synctest.Wait()
		r.want(t, "with a full batch", "a\nb\nc\n")
	})
}

// TestWriteReturnsWhenWritten: a line of the gateway is written when Write returns, after the lines
// queued before it. The order of a log matters.
func TestWriteReturnsWhenWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		s := logsink.New(&r, logsink.Options{})
		defer s.Close()
		begin := time.Now()
		say(s.Batched(), "a")
		say(s, "b")
		r.want(t, "after Write", "a\nb\n")
		say(s, "c")
		r.want(t, "after another one", "a\nb\n", "c\n")
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}

func TestErrorsHurry(t *testing.T) {
	for _, level := range []zerolog.Level{zerolog.DebugLevel, zerolog.InfoLevel, zerolog.WarnLevel, zerolog.ErrorLevel, zerolog.FatalLevel, zerolog.NoLevel} {
		synctest.Test(t, func(t *testing.T) {
			var r reader
			s := logsink.New(&r, logsink.Options{})
			defer s.Close()
			say(s.Batched(), "a")
			_, _ = s.Batched().WriteLevel(level, []byte("b\n"))
			synctest.Wait()
			if level == zerolog.ErrorLevel || level == zerolog.FatalLevel {
				r.want(t, level.String(), "a\nb\n")
			} else {
				r.want(t, level.String())
			}
		})
	}
}

// TestNobodyReads: a log that nobody reads must not cost the gateway its requests or its memory.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reader{gate: make(chan struct{})}
		const limit = 640
		s := logsink.New(&r, logsink.Options{Limit: limit})
		begin := time.Now()
		say(s, "first") // its batch is stuck
		if took := time.Since(begin); took != logsink.DefaultPatience {
			t.Errorf("the first line was waited for %s, want %s", took, logsink.DefaultPatience)
		}
		begin = time.Now()
		for range 2 * limit / 8 {
			say(s.Batched(), "request")
		}
		if lost, want := s.Lost(), uint64(limit/8+limit/8/8); lost != want {
			t.Errorf("%d lines of requests were lost, want %d", lost, want)
		}
		for range limit/8/8 + 3 {
			say(s, "warning") // an eighth of the room is reserved for it
		}
		if lost, want := s.Lost(), uint64(limit/8+limit/8/8+3); lost != want {
			t.Errorf("%d lines were lost with those that had room of their own, want %d", lost, want)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the lines behind it were waited for %s", took)
		}
		close(r.gate)
		s.Close()
		if len(r.got()) != 2 {
			t.Fatalf("written %q, want what was stuck and one batch", r.got())
		}
		written := r.got()[1]
		if n := strings.Count(written, "request\n"); n != limit/8-limit/8/8 {
			t.Errorf("%d lines of requests were written", n)
		}
		if n := strings.Count(written, "warning\n"); n != limit/8/8 {
			t.Errorf("%d warnings were written", n)
		}
		last := written[strings.LastIndex(strings.TrimSuffix(written, "\n"), "\n")+1:]
		if !strings.Contains(last, fmt.Sprintf(`"lost":%d,`, s.Lost())) || !strings.Contains(last, `"level":"warn"`) {
			t.Errorf("the last line is %q, want one that tells of %d lost lines", last, s.Lost())
		}
	})
}

// TestReadingGoesOn: when the log is read again, Write waits for its line again.
func TestReadingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reader{gate: make(chan struct{})}
		s := logsink.New(&r, logsink.Options{})
		defer s.Close()
		say(s, "a", "b")
		close(r.gate)
		synctest.Wait()
		say(s, "c")
		r.want(t, "after Write", "a\n", "b\n", "c\n")
	})
}

func TestCloseWritesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		s := logsink.New(&r, logsink.Options{})
		say(s.Batched(), "a", "b")
		s.Close()
		s.Close()
		r.want(t, "after Close", "a\nb\n")
		say(s, "c")
		say(s.Batched(), "d")
		r.want(t, "after lines that came too late", "a\nb\n")
		if s.Lost() != 2 {
			t.Errorf("Lost = %d, want 2", s.Lost())
		}
	})
}

// TestCloseDoesNotWaitForMore: Close does not wait for Delay.
func TestCloseDoesNotWaitForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reader
		s := logsink.New(&r, logsink.Options{})
		say(s.Batched(), "a")
		synctest.Wait() // the sink waits for more
		begin := time.Now()
		s.Close()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Close took %s, want it to write at once", took)
		}
		r.want(t, "after Close", "a\n")
	})
}

// TestLostLinesAreToldOfOnce: the log mentions lost lines once.
func TestLostLinesAreToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reader{gate: make(chan struct{})}
		s := logsink.New(&r, logsink.Options{Limit: 8})
		say(s, "first")                               // its batch is stuck
		say(s.Batched(), "longer than there is room") // lost
		close(r.gate)
		synctest.Wait()
		say(s, "second", "third")
		s.Close()
		if told := strings.Count(strings.Join(r.got(), ""), `"lost":1,`); told != 1 {
			t.Errorf("one lost line was told of %d times in %q", told, r.got())
		}
	})
}

func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reader{gate: make(chan struct{})}
		s := logsink.New(&r, logsink.Options{})
		say(s.Batched(), "a")
		begin := time.Now()
		s.Close()
		if took := time.Since(begin); took != 10*logsink.DefaultPatience {
			t.Errorf("Close took %s, want %s", took, 10*logsink.DefaultPatience)
		}
		close(r.gate) // otherwise the goroutine of the sink outlives the test
	})
}

type broken struct{}

func (broken) Write(b []byte) (int, error) { return 2, errors.New("no space left") }

func TestLinesThatCannotBeWrittenAreCounted(t *testing.T) {
	s := logsink.New(broken{}, logsink.Options{})
	say(s.Batched(), "a", "b")
	s.Close()
	if s.Lost() != 1 {
		t.Errorf("Lost = %d, want 1: the second line", s.Lost())
	}
}

func TestLinesStayWholeAndInOrder(t *testing.T) {
	var r reader
	s := logsink.New(&r, logsink.Options{Batch: 200})
	const writers, each = 8, 500
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for j := range each {
				w := io.Writer(s.Batched())
				if j%20 == 0 {
					w = s
				}
				say(w, fmt.Sprintf("%d %d", i, j))
			}
		})
	}
	writing.Wait()
	s.Close()
	var next [writers]int
	for line := range bytes.Lines([]byte(strings.Join(r.got(), ""))) {
		var i, j int
		if _, err := fmt.Sscanf(string(line), "%d %d\n", &i, &j); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if j != next[i] {
			t.Fatalf("writer %d: line %d came after %d", i, j, next[i]-1)
		}
		next[i]++
	}
	for i, n := range next {
		if n != each {
			t.Errorf("writer %d: %d lines, want %d", i, n, each)
		}
	}
}
