package clientconn_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/internal/clientconn"
)

// TestStreamIsWhole makes random calls, like servers, handlers and new owners of a connection do,
// while the peer sends. Every byte must arrive once and in order. The context must end with the
// peer and not before.
func TestStreamIsWhole(t *testing.T) {
	clientconn.NeedsHabits(t)
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			conn, _, peer := pipe(t)
			ctx := clientconn.ConnContext(t.Context(), conn)
			sent := make([]byte, 40)
			for i := range sent {
				sent[i] = byte(i)
			}
			go sendSlowly(peer, sent, rand.New(rand.NewPCG(seed, 2)))
			var got []byte
			for step := 0; len(got) < len(sent) && step < 2000; step++ {
				got = append(got, doAnything(t, conn, random)...)
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("seed %d: %v has arrived", seed, got)
			}
			if ctx.Err() != nil {
				t.Errorf("seed %d: the context has ended with its client there", seed)
			}
			// A deadline would end the check, as it ends the server's own.
			_ = conn.SetReadDeadline(time.Time{})
			_, _ = conn.Read(make([]byte, 1))
			_ = peer.Close()
			time.Sleep(2 * clientconn.Glance)
			synctest.Wait()
			if ctx.Err() == nil {
				t.Errorf("seed %d: the context has not ended with its client gone", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func sendSlowly(peer interface{ Write([]byte) (int, error) }, data []byte, random *rand.Rand) {
	for len(data) > 0 {
		time.Sleep(time.Duration(random.IntN(4)) * clientconn.Glance / 3)
		n := min(1+random.IntN(5), len(data))
		if _, err := peer.Write(data[:n]); err != nil {
			return
		}
		data = data[n:]
	}
}

// doAnything makes one random call on conn, and returns the bytes that it has read.
func doAnything(t *testing.T, conn *clientconn.Conn, random *rand.Rand) []byte {
	t.Helper()
	switch random.IntN(6) {
	case 0:
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
	case 1, 2:
		// The server's background read. If a check runs or has found a byte, the read returns
		// something.
		_ = conn.SetReadDeadline(time.Time{})
		p := make([]byte, 1)
		n, err := conn.Read(p)
		if err != nil {
			t.Errorf("a background read = %v", err)
		}
		return p[:n]
	default:
		_ = conn.SetReadDeadline(time.Now().Add(time.Duration(random.IntN(200)) * time.Millisecond))
		p := make([]byte, 1+random.IntN(8))
		n, err := conn.Read(p)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v", err)
		}
		return p[:n]
	}
	return nil
}
