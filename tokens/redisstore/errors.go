package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"snowgate/tokens"
)

// The kinds of failure in metrics and logs.
const (
	KindOK       = "ok"       // success, which includes the reply that a key does not exist
	KindTimeout  = "timeout"  // no response in time, or no free connection
	KindRefused  = "refused"  // no connection, or a lost one
	KindTLS      = "tls"      // no connection, because one side refuses the certificate of the other
	KindReadOnly = "readonly" // a replica, or a primary that refuses writes
	KindOOM      = "oom"      // full, with the policy noeviction
	KindLoading  = "loading"  // starting, or cut off from its primary
	KindAuth     = "auth"     // wrong password, or a right is missing
	KindCluster  = "cluster"  // a shard is down or moving
	KindCanceled = "canceled" // the caller gave up
	KindOther    = "other"    // anything else, such as an invalid value
)

// Error is a failure of the store. It matches [tokens.ErrUnavailable] and its
// cause with errors.Is, and never contains a password.
type Error struct {
	Op   string // what was attempted
	Kind string // one of the Kind constants
	Err  error  // the cause
}

func failure(op string, err error) error {
	return &Error{Op: op, Kind: Kind(err), Err: err}
}

func (e *Error) Error() string {
	return fmt.Sprintf("redisstore: cannot %s: %s: %v", e.Op, e.Kind, e.Err)
}

// Unwrap returns [tokens.ErrUnavailable] and the cause.
func (e *Error) Unwrap() []error { return []error{tokens.ErrUnavailable, e.Err} }

// kinded is an error with a kind.
type kinded interface {
	error
	kind() string
}

// serverKinds maps the beginning of an error reply to its kind.
var serverKinds = []struct{ prefix, kind string }{
	{"READONLY", KindReadOnly},
	{"MISCONF", KindReadOnly},    // cannot write to its disk, so refuses to at all
	{"NOREPLICAS", KindReadOnly}, // fewer replicas than it must have to write
	{"OOM", KindOOM},
	{"LOADING", KindLoading},
	{"MASTERDOWN", KindLoading},
	{"NOAUTH", KindAuth},
	{"WRONGPASS", KindAuth},
	{"NOPERM", KindAuth},
	{"ERR The user executing the script can't", KindAuth}, // a right is missing, in Redis 7.0
	{"ERR ACL failure in script", KindAuth},               // and later
	{"ERR AUTH", KindAuth},                                // a password where none is set
	{"ERR invalid password", KindAuth},                    // before Redis 6
	{"CLUSTERDOWN", KindCluster},
	{"MOVED", KindCluster},
	{"ASK", KindCluster},
	{"TRYAGAIN", KindCluster},
	{"CROSSSLOT", KindCluster},
}

// Kind returns the kind of failure of err. It returns [KindOK] for nil, and for the reply that a
// key does not exist.
func Kind(err error) string {
	if err == nil || err == redis.Nil { //nolint:errorlint // what wraps Nil is a failure, see Store.load
		return KindOK
	}
	if known, ok := errors.AsType[kinded](err); ok {
		return known.kind()
	}
	if store, ok := errors.AsType[*Error](err); ok {
		return store.Kind
	}
	switch server, ok := errors.AsType[redis.Error](err); {
	case isTLS(err):
		return KindTLS
	case errors.Is(err, context.Canceled):
		return KindCanceled
	case isTimeout(err):
		return KindTimeout
	case ok:
		return serverKind(server.Error())
	case isLost(err):
		return KindRefused
	default:
		return KindOther
	}
}

func serverKind(text string) string {
	for _, known := range serverKinds {
		if strings.HasPrefix(text, known.prefix) {
			return known.kind
		}
	}
	return KindOther
}

// isTLS reports whether a handshake failed because of a certificate. In TLS 1.3, a server that
// refuses the certificate of the client sends its alert only after the client has completed the
// handshake, so the alert arrives in place of the first reply (RFC 8446 §4.4.2.4).
func isTLS(err error) bool {
	_, ours := errors.AsType[*tls.CertificateVerificationError](err)
	_, theirs := errors.AsType[tls.AlertError](err)
	return ours || theirs || strings.Contains(err.Error(), "remote error: tls:")
}

func isTimeout(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && network.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

func isLost(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	_, system := errors.AsType[syscall.Errno](err)
	return network || system ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
