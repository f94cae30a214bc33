package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"

	"snowgate/tokens"
)

// frame returns a frame of size bytes; long widens the encoding of its length.
func frame(opcode byte, size int, masked bool, long bool) []byte {
	var mask byte
	if masked {
		mask = 0x80
	}
	f := []byte{0x80 | opcode}
	switch {
	case long || size > 0xffff:
		f = binary.BigEndian.AppendUint64(append(f, mask|127), uint64(size))
	case size > 125:
		f = binary.BigEndian.AppendUint16(append(f, mask|126), uint16(size))
	default:
		f = append(f, mask|byte(size))
	}
	if masked {
		f = append(f, 1, 2, 3, 4)
	}
	return append(f, bytes.Repeat([]byte{0x88}, size)...) // looks like close frames
}

// TestFrames cuts a conversation up in all sorts of ways: the ends of its frames
// are found, all of them and nothing else.
func TestFrames(t *testing.T) {
	var all []byte
	ends := map[int]bool{0: true}
	for _, size := range []int{0, 1, 125, 126, 127, 0, 65535, 65536, 3} {
		for _, masked := range []bool{false, true} {
			for _, long := range []bool{false, true} {
				all = append(all, frame(0x2, size, masked, long)...)
				ends[len(all)] = true
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 2, 3, 14, 15, 1000, 40_000, len(all)} {
		var f frames
		for at := 0; at < len(all); {
			if f.between() != ends[at] {
				t.Fatalf("pieces up to %d: between frames after %d bytes = %t, want %t", most, at, f.between(), ends[at])
			}
			piece := all[at:min(len(all), at+1+random.IntN(most))]
			n := f.next(piece)
			if n < len(piece) && !ends[at+n] {
				t.Fatalf("pieces up to %d: next stops after %d bytes, where no frame ends", most, at+n)
			}
			for end := at + 1; end < at+n; end++ {
				if ends[end] {
					t.Fatalf("pieces up to %d: next goes on at %d, where a frame ends", most, end)
				}
			}
			at += n
		}
		if !f.between() || f.closed {
			t.Errorf("pieces up to %d: at the end between = %t, closed = %t; want true, false", most, f.between(), f.closed)
		}
		f.pass(frame(opClose, 2, false, false))
		if !f.closed {
			t.Errorf("pieces up to %d: a close frame is not seen", most)
		}
	}
}

// FuzzFrames feeds anything: all of it is taken, and however it is cut up, the
// end is the same.
func FuzzFrames(f *testing.F) {
	f.Add(frame(0x1, 5, false, false), uint16(3))
	f.Add(frame(0x2, 70_000, true, false), uint16(9))
	f.Add([]byte{0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		var whole, pieces frames
		whole.pass(data)
		cut := int(at) % (len(data) + 1)
		pieces.pass(data[:cut])
		pieces.pass(data[cut:])
		whole.header, pieces.header = [14]byte{}, [14]byte{} // old headers stay in it
		if whole != pieces {
			t.Errorf("whole %+v, in pieces %+v", whole, pieces)
		}
	})
}

// openTunnel returns a tunnel, past its handshake, and what is sent through it.
func openTunnel(t *testing.T) (*tunnel, <-chan []byte) {
	t.Helper()
	ours, clients := net.Pipe()
	through := newTunnel(ours, func() {})
	if through.announce(closeFrame(tokens.ErrExpired)) {
		t.Error("a close frame ahead of the handshake is accepted")
	}
	received := make(chan []byte)
	go func() {
		_, _ = clients.Write([]byte("x"))
		got, _ := io.ReadAll(clients)
		received <- got
	}()
	if _, err := through.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return through, received
}

// TestTunnelStopsAtTheEndOfAFrame: of what a service sends after the tunnel was
// cut, the frame under way gets through, and nothing else.
func TestTunnelStopsAtTheEndOfAFrame(t *testing.T) {
	synctest.Test(t, testTunnelStops)
}

func testTunnelStops(t *testing.T) {
	first, next := frame(0x2, 300, false, false), frame(0x2, 5, false, false)
	last := closeFrame(tokens.ErrExpired)
	both := append(first[:len(first):len(first)], next...)
	for at := range len(first) + 1 {
		through, received := openTunnel(t)
		if _, err := through.Write(both[:at]); err != nil {
			t.Fatal(err)
		}
		if !through.announce(last) {
			t.Fatal("an open tunnel is not cut")
		}
		rest := len(first) - at
		if at == 0 {
			rest = 0 // no frame is under way
		}
		if n, err := through.Write(both[at:]); n != rest || !errors.Is(err, errCut) {
			t.Errorf("after %d bytes: Write() = %d, %v, want %d, errCut", at, n, err, rest)
		}
		if n, err := through.Write(next); n != 0 || !errors.Is(err, errCut) {
			t.Errorf("after %d bytes: a second Write() = %d, %v, want 0, errCut", at, n, err)
		}
		_ = through.Close()
		want := append(both[:at+rest:at+rest], last...)
		if got := <-received; !bytes.Equal(got, want) {
			t.Errorf("after %d bytes: the client received %d bytes, want %d", at, len(got), len(want))
		}
	}
}
