package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"snowgate/config"
	"snowgate/tokens/redisstore"
)

// probeTimeout bounds the attempt to find out which protocol a silent Redis speaks. The monitor waits
// for it.
const probeTimeout = 300 * time.Millisecond

// redisHint returns what to do about a failure to use the configured Redis, with the variable that
// names it. It asks a server that gave no response whether it speaks TLS.
func redisHint(ctx context.Context, cfg config.Config, err error) string {
	const variable = config.Prefix + "REDIS_URL"
	address := redisAddress(cfg.RedisURL)
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch redisstore.Kind(err) {
	case redisstore.KindAuth:
		switch {
		case strings.Contains(text, "NOAUTH"):
			return variable + ": this Redis wants a password: redis://:PASSWORD@" + address
		case strings.Contains(text, "WRONGPASS") || strings.Contains(text, "ERR invalid password"):
			return variable + ": the password is wrong, or the user, for the Redis at " + address
		case strings.Contains(text, "ERR AUTH"):
			return variable + ": the Redis at " + address + " has no password; write redis://" + address
		}
		return variable + ": the user lacks a right; docs/how-to/check-before-a-start.md has all that are needed"
	case redisstore.KindReadOnly:
		return variable + ": the server takes no writes, it may be a replica; name the primary, or use redis+sentinel://"
	case redisstore.KindTLS:
		return tlsWayOut(address, text)
	case redisstore.KindTimeout, redisstore.KindRefused:
		if hint := tlsHint(ctx, cfg); hint != "" {
			return variable + ": the Redis at " + address + " " + hint
		}
		return variable + ": Redis cannot be asked; is it running there, and reachable from here?"
	}
	return variable + " names it"
}

// tlsWayOut returns what to do when one side refuses the certificate of the other.
func tlsWayOut(address, text string) string {
	const variable = config.Prefix + "REDIS_"
	switch {
	case strings.Contains(text, "remote error") && strings.Contains(text, "certificate required"):
		return variable + "CERT and " + variable + "KEY: the Redis at " + address + " wants a certificate of its clients"
	case strings.Contains(text, "remote error"):
		return variable + "CERT: the Redis at " + address + " does not accept this certificate"
	case strings.Contains(text, "unknown authority"):
		return variable + "CA: the certificate of the Redis at " + address + " is signed by another CA; name the PEM file of that one"
	case strings.Contains(text, "expired"):
		return variable + "URL: the certificate of the Redis at " + address + " has expired, or the clock of this host is wrong"
	}
	return variable + "URL: the certificate of the Redis at " + address + " is not for that name"
}

// tlsHint returns what is wrong if the URL asks for TLS and the server speaks none, or the other way
// round; nothing if neither can be seen.
func tlsHint(ctx context.Context, cfg config.Config) string {
	u, err := url.Parse(cfg.RedisURL.Reveal())
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" {
		return ""
	}
	begun := time.Now()
	dialer := net.Dialer{Timeout: min(2*cfg.StoreTimeout, time.Second)} // or a round trip that is too long would not show
	conn, err := dialer.DialContext(ctx, "tcp", redisAddress(cfg.RedisURL))
	if err != nil {
		return ""
	}
	defer conn.Close()
	if trip := time.Since(begun); trip > cfg.StoreTimeout/2 {
		return fmt.Sprintf("is %v away and back: set %sSTORE_TIMEOUT to twice that at least", trip.Round(time.Millisecond), config.Prefix)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(probeTimeout))
	if u.Scheme == "rediss" {
		var answer [1]byte
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return ""
		}
		if n, _ := conn.Read(answer[:]); n == 1 && (answer[0] == '+' || answer[0] == '-') {
			return "speaks no TLS: write redis:// instead of rediss://"
		}
		return ""
	}
	// Nothing is sent on this connection but the handshake.
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // see above
	err = client.HandshakeContext(ctx)
	if _, alert := errors.AsType[tls.AlertError](err); err == nil || alert {
		return "speaks TLS: write rediss:// instead of redis://"
	}
	return ""
}

// noticeClock logs when the clock of Redis is not that of this host, or before the epoch, and when
// it is right again. It is called by the monitor's goroutine alone.
func (r *storage) noticeClock(h redisstore.Health) {
	if !h.Reachable || h.Measured.IsZero() {
		return
	}
	now, trouble := h.Measured.Add(h.Offset), ""
	most := clockNote + h.RoundTrip/2
	if r.clockTrouble != "" {
		most /= 2 // a clock that is barely off is logged once
	}
	switch {
	case now.Before(r.cfg.Epoch):
		trouble = "the clock of Redis reads a time before the epoch: no ids and tokens are issued"
	case h.Offset.Abs() > most:
		trouble = "the clock of Redis is not that of this host"
	}
	if trouble == r.clockTrouble {
		return
	}
	r.clockTrouble = trouble
	switch {
	case trouble == "":
		r.log.Info().Msg("the clock of Redis is right again")
	case now.Before(r.cfg.Epoch):
		r.log.Error().Str("reason", epochAhead(r.cfg, now).Error()).Msg(trouble)
	default:
		r.log.Warn().Str("reason", clockDifference(h.Offset)).Msg(trouble)
	}
}

// epochAhead says that the epoch is later than the clock of Redis.
func epochAhead(cfg config.Config, redis time.Time) error {
	return fmt.Errorf("%sEPOCH: %s is in the future by the clock of Redis, where it is %s; correct that clock",
		config.Prefix, cfg.Epoch.UTC().Format(time.RFC3339), redis.UTC().Format(time.RFC3339))
}
