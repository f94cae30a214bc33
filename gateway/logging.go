package gateway

import (
	"bytes"
	"context"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"snowgate/config"
	"snowgate/internal/logsink"
	"snowgate/internal/panics"
)

// Logs is where one gateway logs. It is safe for concurrent use.
type Logs struct {
	sink *logsink.Sink
	// main takes the lines about the gateway itself: a line is written when the call returns.
	main zerolog.Logger
	// access is for the lines of requests, which are made and written a little later,
	// many at once.
	access *logsink.Deferred
}

// OpenLogs returns the logs that cfg asks for, written to stderr. They are closed
// after everything else, so that the last line is written.
func OpenLogs(stderr io.Writer, cfg config.Config) *Logs {
	zerolog.TimeFieldFormat = time.RFC3339Nano
	zerolog.DurationFieldFormat = zerolog.DurationFormatString // with its unit
	var out io.Writer = visible{stderr}
	if terminal := isTerminal(stderr); cfg.LogFormat == "console" || cfg.LogFormat == "auto" && terminal {
		out = eachLine{zerolog.ConsoleWriter{Out: visible{stderr}, TimeFormat: time.TimeOnly, NoColor: !terminal}}
	}
	level, err := zerolog.ParseLevel(cfg.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel // config has checked it
	}
	sink := logsink.New(out, logsink.Options{})
	logger := zerolog.New(sink).Level(level).With().Timestamp().Logger()
	// The lines of requests carry their own time.
	access := sink.Deferred(zerolog.New(nil).Level(level), "request")
	log.SetFlags(0)
	log.SetOutput(libraryLog{zerolog.New(sink.Batched()).Level(level).With().Timestamp().Logger()})
	panics.Notify(func(p *panics.Panic) { logPanic(logger, p) })
	return &Logs{sink: sink, main: logger, access: access}
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// logPanic logs a recovered panic. Those of handlers are in the line of the request.
func logPanic(logger zerolog.Logger, p *panics.Panic) {
	logger.Error().Stringer("part", p.Part).Str("cause", p.Error()).Str("stack", p.Stack).Uint64("untold", p.Untold).
		Msg("a panic was caught: what it was in the middle of has ended, everything else goes on")
}

// Close writes what has not been written yet. It may be called twice.
func (l *Logs) Close() { l.sink.Close() }

// logTo sends the lines of requests to l, and has the metrics count the lines that are lost there.
func (g *Gateway) logTo(l *Logs) {
	g.access = l.access.Add
	g.metrics.CollectLostLines(l.sink.Lost)
}

// eachLine hands lines on one by one: a [zerolog.ConsoleWriter] takes no more.
type eachLine struct{ out io.Writer }

// Write implements [io.Writer].
func (w eachLine) Write(lines []byte) (int, error) {
	written := 0
	for line := range bytes.Lines(lines) {
		n, err := w.out.Write(line)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// serverLog writes the messages of net/http as debug lines. Most are about clients that break off.
func serverLog(logger zerolog.Logger, listener string) *log.Logger {
	return log.New(lineWriter{logger.With().Str("listener", listener).Logger()}, "", 0)
}

type lineWriter struct{ logger zerolog.Logger }

func (w lineWriter) Write(line []byte) (int, error) {
	w.logger.Debug().Msg(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// libraryLog writes as debug lines what libraries write to the logger of package log. net/http's
// transport quotes bytes of services there, which may hold a token, so a line ends where it begins
// to quote. It never waits: net/http writes with locks held that requests wait for.
type libraryLog struct{ logger zerolog.Logger }

// Write implements [io.Writer].
func (w libraryLog) Write(line []byte) (int, error) {
	const most = 200 // bytes, of a text that says what happened
	text, _, quoted := strings.Cut(strings.TrimSuffix(string(line), "\n"), `"`)
	if quoted {
		text += "[redacted]"
	}
	w.logger.Debug().Str("from", "library").Msg(strings.ToValidUTF8(text[:min(len(text), most)], ""))
	return len(line), nil
}

// redisLog writes the messages of go-redis as debug lines. Most are about failed connections, which
// the monitor reports once, with their cause.
type redisLog struct{ logger zerolog.Logger }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.logger.Debug().Str("from", "go-redis").Msgf(format, args...)
}
