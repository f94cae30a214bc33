package http1

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// Call is one request and its response. Only [Call.Abort] is safe for concurrent use; one goroutine
// at a time may call the other methods.
type Call struct {
	// Status, Header and Length are valid after Send has returned nil. Header is as received, with
	// canonical names, except that a void Content-Length is removed. Length is -1 if only the end
	// of the body tells its length.
	Status int
	Header []Field
	Length int64

	// Reused says that the last connection tried had carried other requests, and Heard that the
	// server sent at least one byte on it. Both are valid after Send has returned.
	Reused, Heard bool

	transport *Transport
	conn      *conn // nil when the call is over
	upload    *upload
	body      body
	coded     bool // the body is chunked
	lasting   bool // the connection may be used again
	few       [12]Field

	mu      sync.Mutex
	open    *conn              // the connection that Abort closes
	cancel  context.CancelFunc // cancels a dial
	aborted bool
}

// Send sends r and waits for the header of the response. If fresh is set, it uses a new connection;
// otherwise it prefers a kept one. After an error the call is over, but r.Body may still be in use;
// see [Call.Wait].
//
// Send skips kept connections that turn out to be closed before anything was written. Once a byte
// was written, Send does not repeat the request. The caller decides whether it may be repeated.
func (c *Call) Send(ctx context.Context, r *Request, fresh bool) error {
	for {
		conn, err := c.connect(ctx, fresh)
		if err != nil {
			return err
		}
		wrote, err := c.sendOn(conn, r)
		if err == nil {
			return nil
		}
		stale := conn.kept && wrote == 0 && c.upload == nil
		c.hangUp()
		if !stale || c.isAborted() {
			return err
		}
	}
}

// connect takes a kept connection for the call, or makes one.
func (c *Call) connect(ctx context.Context, fresh bool) (*conn, error) {
	var one *conn
	if !fresh {
		one = c.transport.take()
	}
	if one == nil {
		var err error
		if one, err = c.dial(ctx); err != nil {
			return nil, err
		}
	}
	c.conn, c.Reused = one, one.kept
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aborted {
		one.close()
	}
	c.open = one
	return one, nil
}

// dial makes a connection. It fails if the call is aborted.
func (c *Call) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.cancel = cancel
	if c.aborted {
		cancel()
	}
	c.mu.Unlock()
	return c.transport.dial(ctx)
}

// sendOn sends r on one connection and reads the header of the response. It returns the number of
// bytes written.
func (c *Call) sendOn(conn *conn, r *Request) (wrote int, err error) {
	head, err := r.appendHead(conn.out[:0])
	if cap(head) <= maxKeptOut {
		conn.out = head
	}
	if err != nil {
		conn.kept = false // the connection is not to blame
		return 0, err
	}
	var begin func()
	if r.Body != nil {
		begin = func() { c.upload = startUpload(conn, r, c.transport.ContinueTimeout) }
	}
	wrote, err = conn.ask(head, begin)
	if err == errStale && !conn.kept { //nolint:errorlint // it is never wrapped
		return 0, malformed("response", "before the request")
	}
	if err != nil {
		return wrote, broken(err)
	}
	c.Heard = true
	return wrote, c.receive(r)
}

// receive reads interim responses, and then the header of the final response.
func (c *Call) receive(r *Request) error {
	for range MaxInterim {
		head, err := c.conn.head(c.transport.MaxHeader)
		if err != nil {
			return err
		}
		if err := c.parseHead(head); err != nil {
			return err
		}
		if c.Status == 101 && r.hasBody() {
			return malformed("response", "101 to a request with a body") // which may still be sent
		}
		if c.Status >= 200 || c.Status == 101 {
			c.expectBody(r.Method)
			return nil
		}
		if c.Status == 100 {
			c.upload.proceed()
		}
		if r.Interim != nil {
			if err := r.Interim(c.Status, c.Header); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: more than %d interim ones", ErrResponse, MaxInterim)
}

// Abort makes the call fail at once. It is safe for concurrent use at any time, and does nothing to
// a call that is over.
func (c *Call) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	if c.cancel != nil {
		c.cancel()
	}
	if c.open != nil {
		c.open.close()
	}
}

func (c *Call) isAborted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aborted
}

// letGo detaches the connection from Abort. It reports whether the connection was not aborted.
func (c *Call) letGo() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = nil
	return !c.aborted
}

// hangUp ends the call and closes its connection.
func (c *Call) hangUp() {
	c.letGo()
	c.conn.close()
	c.conn = nil
	c.upload.stop()
}

// settleTime is how long a call whose response is complete waits for the last of its
// request to be written, which is a matter of the scheduler's turn if the server has
// waited for the whole of it.
const settleTime = 50 * time.Millisecond

// finish keeps the connection for the next call, and reports whether it did. The response must have
// been read to its end, the request written to its end within limit, and neither side may want to
// close.
func (c *Call) finish(limit time.Duration) bool {
	if c.conn == nil || !c.body.ended || !c.lasting || len(c.conn.buffered()) > 0 || !c.upload.complete(limit) || !c.letGo() {
		return false
	}
	conn := c.conn
	c.conn = nil
	c.transport.keep(conn)
	return true
}

// Close ends the call. It keeps the connection if it can be used again, and closes it otherwise.
// Close may be called more than once.
func (c *Call) Close() error {
	if c.conn != nil && !c.finish(settleTime) {
		c.hangUp()
	}
	return nil
}

// Wait waits until nobody reads the body of the request any more. The call must be over. Wait does
// not end a blocked Read of the body.
func (c *Call) Wait() { c.upload.wait() }

// Tunnel returns the connection as it is, after a response that switches protocols (RFC 9110
// §15.2.2). Bytes that were read ahead come first. [Call.Close] and [Call.Abort] close it.
func (c *Call) Tunnel() io.ReadWriteCloser { return &tunnel{c, c.conn} }

type tunnel struct {
	call *Call
	conn *conn
}

func (t *tunnel) Read(p []byte) (int, error) { return t.conn.read(p) }

func (t *tunnel) Write(p []byte) (int, error) { return t.conn.net.Write(p) }

// Close is safe for concurrent use, and may be called more than once.
func (t *tunnel) Close() error {
	t.call.Abort()
	return nil
}

// CloseWrite tells the server that no more bytes follow.
func (t *tunnel) CloseWrite() error {
	half, ok := t.conn.net.(interface{ CloseWrite() error })
	if !ok {
		return io.ErrClosedPipe
	}
	return half.CloseWrite()
}

// Do is [Call.Send] with a context: the end of ctx aborts the call. The caller must close the call.
func (t *Transport) Do(ctx context.Context, r *Request) (*Call, error) {
	call := t.Call()
	stop := context.AfterFunc(ctx, func() { defer panics.Catch(panics.Upstream, nil); call.Abort() })
	if err := call.Send(ctx, r, false); err != nil {
		stop()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return call, nil
}
