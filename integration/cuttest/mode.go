// Package cuttest cuts the bytes that tests send. TCP promises an order of bytes and no borders
// between them, so what the code under test makes of them may not depend on where one read ends
// and the next begins. The mode of the process says where the cuts are.
//
// [Reads] is for the side of the code under test. Each Read returns one piece, whatever has come.
// [Writes] is for the side of the test. Each piece is a write of its own, which waits until the
// peer has read the piece before. [Relay] does that between two processes.
package cuttest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// Variable is the environment variable that holds the mode.
const Variable = "SNOWGATE_TEST_CUT"

// Mode says where bytes are cut. The zero value cuts nothing.
type Mode struct {
	kind kind
	seed uint64 // of random
	at   int    // of once
}

type kind string

const (
	whole  kind = ""
	bytes  kind = "bytes"
	edges  kind = "edges"
	random kind = "random"
	once   kind = "at"
)

// The modes that tests choose themselves. Bytes cuts behind every byte, for a while at a time.
// Edges cuts around the multiples of 2 KiB, which the sizes of all buffers are.
var (
	Whole = Mode{}
	Bytes = Mode{kind: bytes}
	Edges = Mode{kind: edges}
)

// Random returns a mode with cuts at random.
func Random(seed uint64) Mode { return Mode{kind: random, seed: seed} }

// At returns a mode that cuts each write once, behind n bytes.
func At(n int) Mode { return Mode{kind: once, at: n} }

// String returns the text that [Parse] reads.
func (m Mode) String() string {
	switch m.kind {
	case whole:
		return "whole"
	case random:
		return fmt.Sprintf("random:%d", m.seed)
	case once:
		return fmt.Sprintf("at:%d", m.at)
	default:
		return string(m.kind)
	}
}

// Parse reads whole, bytes, edges, random:SEED or at:OFFSET. Empty is whole.
func Parse(text string) (Mode, error) {
	name, number, numbered := strings.Cut(text, ":")
	n, err := strconv.ParseUint(number, 10, 31)
	switch {
	case text == "" || text == "whole":
		return Whole, nil
	case text == "bytes":
		return Bytes, nil
	case text == "edges":
		return Edges, nil
	case name == "random" && numbered && err == nil:
		return Random(n), nil
	case name == "at" && numbered && err == nil:
		return At(int(n)), nil
	}
	return Mode{}, fmt.Errorf("cuttest: %s=%q: want whole, bytes, edges, random:SEED or at:OFFSET", Variable, text)
}

var current atomic.Pointer[Mode]

func init() { Use(FromEnvironment()) }

// FromEnvironment returns the mode that the environment asks for. One that nobody knows panics:
// a test that cuts nothing by mistake would pass.
func FromEnvironment() Mode {
	mode, err := Parse(os.Getenv(Variable))
	if err != nil {
		panic(err)
	}
	return mode
}

// Use sets the mode of connections that are made from now on.
func Use(m Mode) { current.Store(&m) }

// SkipUnlessWhole skips a test that does not hold when bytes are cut. why says what it counts.
func SkipUnlessWhole(t testing.TB, why string) {
	t.Helper()
	if mode := Current(); mode != Whole {
		t.Skipf("with bytes cut (%v): %s", mode, why)
	}
}

// Current returns the mode of the process.
func Current() Mode { return *current.Load() }

// edge is what the sizes of all buffers are multiples of.
const edge = 2 << 10

const (
	byteRun   = 512      // bytes one by one, at the beginning of each window
	window    = 64 << 10 // how often they come again
	largePart = 4093     // bytes of a piece between them; a prime, so that it meets every offset
	mostCuts  = 1000     // of one write, so that large ones end
)

// pieces chooses the pieces of one stream.
type pieces struct {
	mode   Mode
	offset int // of the next piece
	turns  int
	writes bool       // it is the stream of one Write
	random *rand.Rand // of random
}

var streams atomic.Uint64

func (m Mode) pieces() *pieces {
	p := &pieces{mode: m}
	if m.kind == random {
		p.random = rand.New(rand.NewPCG(m.seed, streams.Add(1)))
	}
	return p
}

// next returns the size of the next piece of a stream of which left bytes are known to come.
func (p *pieces) next(left int) int {
	n := min(max(p.size(left), 1), left)
	p.offset += n
	p.turns++
	return n
}

func (p *pieces) size(left int) int {
	if p.turns >= mostCuts && p.writes {
		return left
	}
	switch p.mode.kind {
	case bytes:
		if p.offset%window < byteRun {
			return 1
		}
		return min(largePart, window-p.offset%window)
	case edges:
		return p.toEdge()
	case random:
		return 1 + p.random.IntN(1<<p.random.IntN(14))
	case once:
		if p.offset < p.mode.at {
			return p.mode.at - p.offset
		}
	}
	return left
}

// toEdge returns how far it is to the next offset that is at most two bytes off an edge.
func (p *pieces) toEdge() int {
	if behind := p.offset % edge; behind < 2 || behind >= edge-2 {
		return 1
	}
	return edge - 2 - p.offset%edge
}
