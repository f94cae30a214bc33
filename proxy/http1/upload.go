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

// uploadBuffer is how much of a body is sent at once.
const uploadBuffer = 32 << 10

// The bytes behind the data of a chunk, and the last chunk (RFC 9112 §7.1).
const (
	chunkEnd  = "\r\n"
	lastChunk = "0\r\n\r\n"
)

// room is what is left around a chunk in the buffer: before it its length in
// hexadecimal, after it its end and the last chunk.
const (
	roomBefore = 8 + len("\r\n")
	roomAfter  = len(chunkEnd) + len(lastChunk)
)

var uploadBuffers = sync.Pool{New: func() any { return new([roomBefore + uploadBuffer + roomAfter]byte) }}

// upload is the sending of the body of a request, beside the reading of the response. A
// nil upload is that of a request without a body.
type upload struct {
	conn *conn
	body io.Reader
	left int64 // of body; under 0: not known

	wanted  chan struct{} // closed when the server wants the body, nil: nobody asks it
	once    sync.Once     // closes wanted
	stopped chan struct{} // closed when the call is over
	done    chan struct{} // closed when body is not read any more
	err     error         // nil: all was written; valid when done is closed
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

// run sends the body. If the client's side of it fails the call cannot succeed, and is
// broken off. If the server takes no more of it, it may still have answered.
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

// broke breaks the call off after a panic.
func (u *upload) broke(err error) {
	u.err = err
	u.conn.close()
}

// sourceError is an error of who the body comes from.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }

func (e *sourceError) Unwrap() error { return e.err }

// await waits for the server to want the body.
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

// frame returns what is sent for n bytes of the body that are in buffer.
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

// chunk makes a chunk of n bytes in buffer, and the last one at the end.
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

// proceed tells that the server wants the body.
func (u *upload) proceed() {
	if u != nil && u.wanted != nil {
		u.once.Do(func() { close(u.wanted) })
	}
}

// stop tells that the call is over. It is called once.
func (u *upload) stop() {
	if u != nil {
		close(u.stopped)
	}
}

// wait waits for the end.
func (u *upload) wait() {
	if u != nil {
		<-u.done
	}
}

// complete reports whether everything was written, or is within limit.
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
