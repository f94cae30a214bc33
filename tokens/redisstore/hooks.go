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

// nameOf returns the name by which a pipeline is counted: that of its commands, if they are all the
// same.
func nameOf(cmds []redis.Cmder) string {
	name := cmds[0].Name()
	for _, cmd := range cmds[1:] {
		if cmd.Name() != name {
			return "pipeline"
		}
	}
	return name
}

// isHandshake tells a command by which go-redis sets a connection up; it passes
// through the hooks inside the caller's command.
func isHandshake(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "client", "readonly":
		return true
	default:
		return false
	}
}

// dialing hides failed dials from go-redis's pool. The pool answers as many
// failed dials as it has places by refusing all connections and trying again
// once a second; that is longer than snowgate may take to notice that Redis is
// back. A dial that fails yields a connection that fails instead, with the same
// error, when the handshake first uses it; the breaker does the waiting.
//
// And it has connections without TLS read, written and looked at without telling the scheduler.
//
// It also turns a panic caused by the bytes of a server into the error of the commands: go-redis
// sends some of them from goroutines of its own, in which a panic would end the process. go-redis
// closes the connection, because the rest of the reply may still come on it.
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
				for _, cmd := range cmds { // even those that were answered: nobody knows how well
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
			// go-redis takes one layer off the error of a handshake.
			err = fmt.Errorf("%w", &dialError{err})
			return failedConn{err, failedAddr{network, addr}}, nil //nolint:nilerr // the connection has it
		}
		return nonblock.Wrap(conn), nil
	}
}

// dialError is the failure to make a connection.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }

// Unwrap gives go-redis the cause, by which it decides whether to try again,
// but not one that it could take for the response to a command.
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
