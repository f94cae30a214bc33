package http1

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readInPieces returns what this package makes of a response whose bytes arrive in pieces that
// end at the offsets cuts: no Read returns bytes of two pieces.
func readInPieces(t *testing.T, method, raw string, cuts []int) result {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		_, _ = theirs.Read(make([]byte, 4<<10)) // the request
		begin := 0
		for _, end := range append(slices.Clone(cuts), len(raw)) {
			if _, err := io.WriteString(theirs, raw[begin:end]); err != nil {
				return
			}
			begin = end
		}
	}()
	conn, err := newConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	call := &Call{transport: &Transport{MaxHeader: 64 << 10}, conn: conn}
	if _, err := call.sendOn(conn, &Request{Method: method, Path: "/", Host: "h"}); err != nil {
		call.hangUp()
		return result{refused: true}
	}
	return finish(call)
}

// cutsOf returns ways to cut n bytes into pieces: in two at every offset, byte by byte, and at
// random. If n is large, it cuts in two only at the start and around the ends of buffers.
func cutsOf(n int, random *rand.Rand) [][]int {
	var ways [][]int
	for i := 1; i < n; i++ {
		if distance := (i + 2) % readBuffer; n <= 400 || i <= 200 || i >= n-40 || distance <= 4 {
			ways = append(ways, []int{i})
		}
	}
	every := make([]int, 0, n)
	for i := 1; i < n && n <= 8<<10; i++ {
		every = append(every, i)
	}
	ways = append(ways, every)
	for range 4 {
		var some []int
		for i := 0; i < n; i += 1 + random.IntN(1+n/8) {
			some = append(some, i)
		}
		ways = append(ways, some)
	}
	return ways
}

// TestResponsesInPieces: what is made of a response does not depend on how its bytes arrive.
func TestResponsesInPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 1))
	for _, test := range answers {
		want := readInPieces(t, "GET", test.raw, nil)
		for _, cuts := range cutsOf(len(test.raw), random) {
			if diff := cmp.Diff(want, readInPieces(t, "GET", test.raw, cuts), cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("%.100q (%s) cut at %.20v: -in one piece +cut\n%.600s", test.raw, test.why, cuts, diff)
				break
			}
		}
	}
}
