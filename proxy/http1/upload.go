package http1

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// uploadBuffer is the maximum number of body bytes in one write.
const uploadBuffer = 32 << 10

// The bytes behind the data of a chunk, and the last chunk (RFC 9112 §7.1).
const (
	chunkEnd  = "\r\n"
	lastChunk = "0\r\n\r\n"
)

// roomBefore is the space in the buffer for the hexadecimal length before a chunk, roomAfter that
// for the end of the chunk and the last chunk.
const (
	roomBefore = 8 + len("\r\n")
	roomAfter  = len(chunkEnd) + len(lastChunk)
)

var uploadBuffers = sync.Pool{New: func() any { return new([roomBefore + uploadBuffer + roomAfter]byte) }}

// upload sends the body of a request while the call reads the response. A nil upload stands for a
// request without a body.
type upload struct {
	conn *conn
	body io.Reader
	left int64 // bytes of body; negative: unknown

	wanted  chan struct{} // closed when the server wants the body; nil: send it at once
	once    sync.Once     // closes wanted
	stopped chan struct{} // closed when the call is over
	done    chan struct{} // closed when body is not read any more
	err     error         // nil: everything was written; valid after done is closed
}

// startUpload sends the body of r on conn.
func startUpload(conn *conn, r *Request, patience time.Duration) *upload {
	u := &upload{conn: conn, body: r.Body, left: r.Length - int64(len(r.Begun)), stopped: make(chan struct{}), done: make(chan struct{})}
	if r.Expect {
		u.wanted = make(chan struct{})
	}
	go func() {
		defer close(u.done)
		defer panics.Catch(panics.Upload, u.broke)
		u.run(patience)
	}()
	return u
}

// run sends the body. If reading the body fails, the request cannot be completed, and run closes
// the connection. If only writing fails, the server may still have responded.
func (u *upload) run(patience time.Duration) {
	if u.err = u.await(patience); u.err == nil {
		buffer, _ := uploadBuffers.Get().(*[roomBefore + uploadBuffer + roomAfter]byte)
		u.err = u.send(buffer[:])
		uploadBuffers.Put(buffer)
	}
	var fault *sourceError
	if errors.As(u.err, &fault) {
		u.conn.close()
	}
}

// broke closes the connection after a panic.
func (u *upload) broke(err error) {
	u.err = err
	u.conn.close()
}

// sourceError is an error of reading the body.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }

func (e *sourceError) Unwrap() error { return e.err }

// await waits until the server wants the body, at most for patience.
func (u *upload) await(patience time.Duration) error {
	if u.wanted == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-u.wanted:
	case <-timer.C:
	case <-u.stopped:
		return ErrAborted
	}
	return nil
}

// send copies the body to its end.
func (u *upload) send(buffer []byte) error {
	for {
		n, err := u.body.Read(buffer[roomBefore : roomBefore+uploadBuffer])
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return &sourceError{err}
		}
		piece, err := u.frame(buffer, n, end)
		if err != nil {
			return err
		}
		if len(piece) > 0 {
			if _, err := u.conn.net.Write(piece); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

// frame returns the bytes to send for the n bytes of the body in buffer.
func (u *upload) frame(buffer []byte, n int, end bool) ([]byte, error) {
	if u.left < 0 {
		return chunk(buffer, n, end), nil
	}
	u.left -= int64(n)
	if u.left < 0 || end && u.left > 0 {
		return nil, &sourceError{fmt.Errorf("%w: the body is %d bytes off its length", ErrRequest, u.left)}
	}
	return buffer[roomBefore : roomBefore+n], nil
}

// chunk makes a chunk of the n bytes in buffer. At the end, it adds the last chunk.
func chunk(buffer []byte, n int, end bool) []byte {
	piece := buffer[roomBefore:roomBefore]
	if n > 0 {
		var digits [roomBefore]byte
		begin := append(strconv.AppendInt(digits[:0], int64(n), 16), "\r\n"...)
		from := roomBefore - len(begin)
		copy(buffer[from:], begin)
		piece = buffer[from : roomBefore+n]
		piece = append(piece, chunkEnd...)
	}
	if end {
		piece = append(piece, lastChunk...)
	}
	return piece
}

// proceed records that the server wants the body.
func (u *upload) proceed() {
	if u != nil && u.wanted != nil {
		u.once.Do(func() { close(u.wanted) })
	}
}

// stop records that the call is over. It is called once.
func (u *upload) stop() {
	if u != nil {
		close(u.stopped)
	}
}

// wait waits until body is not read any more.
func (u *upload) wait() {
	if u != nil {
		<-u.done
	}
}

// complete reports whether everything was written, or is written within limit.
func (u *upload) complete(limit time.Duration) bool {
	if u == nil {
		return true
	}
	select {
	case <-u.done:
		return u.err == nil
	default:
	}
	if limit <= 0 {
		return false
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-u.done:
		return u.err == nil
	case <-timer.C:
		return false
	}
}
