package main

import (
	"context"
	"io"
	"log"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"snowgate/config"
)

// newLogger returns the logger that cfg asks for, writing to w.
func newLogger(cfg config.Config, w io.Writer) zerolog.Logger {
	zerolog.TimeFieldFormat = time.RFC3339Nano
	if cfg.LogFormat == "console" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly}
	}
	level, err := zerolog.ParseLevel(cfg.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel // config has checked it
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

// serverLog turns what net/http has to say, which is mostly about callers that
// break off, into debug lines.
func serverLog(logger zerolog.Logger, listener string) *log.Logger {
	return log.New(lineWriter{logger.With().Str("listener", listener).Logger()}, "", 0)
}

type lineWriter struct{ logger zerolog.Logger }

func (w lineWriter) Write(line []byte) (int, error) {
	w.logger.Debug().Msg(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// redisLog turns what go-redis has to say into debug lines: mostly connections
// that failed, which the monitor reports once and by their cause.
type redisLog struct{ logger zerolog.Logger }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.logger.Debug().Str("from", "go-redis").Msgf(format, args...)
}
