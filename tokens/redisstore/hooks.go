package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/nonblock"
	"snowgate/internal/panics"
)

// observer reports every command that callers issue.
type observer struct {
	observe func(command string, d time.Duration, kind string)
}

func (o observer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o observer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isHandshake(cmd) {
			return next(ctx, cmd)
		}
		begin := time.Now()
		err := next(ctx, cmd)
		o.observe(cmd.Name(), time.Since(begin), Kind(err))
		return err
	}
}

func (o observer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 0 || isHandshake(cmds[0]) {
			return next(ctx, cmds)
		}
		begin := time.Now()
		err := next(ctx, cmds)
		o.observe(nameOf(cmds), time.Since(begin), Kind(err))
		return err
	}
}

// nameOf returns the name of a pipeline in metrics: that of its commands if they all have the same
// name.
func nameOf(cmds []redis.Cmder) string {
	name := cmds[0].Name()
	for _, cmd := range cmds[1:] {
		if cmd.Name() != name {
			return "pipeline"
		}
	}
	return name
}

// isHandshake reports whether go-redis sends cmd to set up a connection. Such commands pass through
// the hooks within the command of a caller.
func isHandshake(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "client", "readonly":
		return true
	default:
		return false
	}
}

// dialing hides failed dials from the pool of go-redis. After as many failed dials as the pool has
// connections, the pool refuses all requests and dials again only once a second, so that the
// gateway would notice too late that Redis is back. Instead, a failed dial returns a connection
// that fails with the same error when the handshake first uses it. The breaker does the waiting.
//
// It also makes connections without TLS read, write and peek without informing the scheduler.
//
// It turns a panic that the bytes of a server cause into an error of the commands. go-redis sends
// some commands from goroutines of its own, in which a panic would end the process. go-redis then
// closes the connection, because the rest of the reply may still arrive on it.
type dialing struct{}

func (dialing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		defer func() {
			if value := recover(); value != nil {
				err = panics.Recovered(panics.Redis, value)
				cmd.SetErr(err)
			}
		}()
		return next(ctx, cmd)
	}
}

func (dialing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		defer func() {
			if value := recover(); value != nil {
				err = panics.Recovered(panics.Redis, value)
				for _, cmd := range cmds { // also those with a reply, which may be wrong
					cmd.SetErr(err)
				}
			}
		}()
		return next(ctx, cmds)
	}
}

func (dialing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			// go-redis unwraps the error of a handshake once.
			err = fmt.Errorf("%w", &dialError{err})
			return failedConn{err, failedAddr{network, addr}}, nil //nolint:nilerr // the connection returns it
		}
		return nonblock.Wrap(conn), nil
	}
}

// dialError is the failure to make a connection.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }

// Unwrap returns the cause, from which go-redis decides whether to try again. It hides a cause that
// go-redis could take for the reply to a command.
func (e *dialError) Unwrap() error {
	if errors.Is(e.err, redis.Nil) {
		return nil
	}
	return e.err
}

func (e *dialError) kind() string {
	if kind := Kind(e.Unwrap()); kind != KindOther && kind != KindOK {
		return kind
	}
	return KindRefused
}

// failedConn is a connection that could not be made.
type failedConn struct {
	err  error
	addr net.Addr
}

func (c failedConn) Read([]byte) (int, error)         { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)        { return 0, c.err }
func (c failedConn) Close() error                     { return nil }
func (c failedConn) LocalAddr() net.Addr              { return c.addr }
func (c failedConn) RemoteAddr() net.Addr             { return c.addr }
func (c failedConn) SetDeadline(time.Time) error      { return nil }
func (c failedConn) SetReadDeadline(time.Time) error  { return nil }
func (c failedConn) SetWriteDeadline(time.Time) error { return nil }

type failedAddr struct{ network, addr string }

func (a failedAddr) Network() string { return a.network }
func (a failedAddr) String() string  { return a.addr }
