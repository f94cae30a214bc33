package logsink_test

import (
	"bytes"
	"io"
	"testing"

	"snowgate/internal/logsink"
)

// BenchmarkBatched measures the cost of an access line without formatting it.
func BenchmarkBatched(b *testing.B) {
	s := logsink.New(io.Discard, logsink.Options{})
	defer s.Close()
	line := append(bytes.Repeat([]byte("x"), 399), '\n')
	w := s.Batched()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = w.Write(line)
	}
}
