package readonly

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits on the requests in flight. They keep one peer from blocking the others.
const (
	maxRequests     = 64 // without event streams
	maxPeerRequests = 16 // from one address
	maxStreams      = 64
	maxPeerStreams  = 8 // of one address
	// streamLife is how long a stream lasts at most. A client that still wants events connects
	// again.
	streamLife = time.Hour
)

// peerOf returns the address that r comes from. Requests without an address count as one peer.
func peerOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr().Unmap()
}

// requests counts the requests of each peer. It is safe for concurrent use.
type requests struct {
	mu     sync.Mutex
	all    int
	byPeer map[netip.Addr]int
}

// begin reports whether peer may have one more request. If so, the caller must call end.
func (q *requests) begin(peer netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all >= maxRequests || q.byPeer[peer] >= maxPeerRequests {
		return false
	}
	if q.byPeer == nil {
		q.byPeer = make(map[netip.Addr]int)
	}
	q.all++
	q.byPeer[peer]++
	return true
}

func (q *requests) end(peer netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all--
	if q.byPeer[peer]--; q.byPeer[peer] == 0 {
		delete(q.byPeer, peer)
	}
}

// streams holds the event streams, the oldest first. It is safe for concurrent use.
type streams struct {
	mu   sync.Mutex
	open []*stream
}

type stream struct {
	peer   netip.Addr
	cancel context.CancelFunc
}

// begin adds a stream, which must stop when ctx ends. If the peer has too many streams, its oldest
// one ends. If all peers together have too many, the oldest stream of the peer with the most
// streams ends. So a new stream is never refused.
func (s *streams) begin(parent context.Context, peer netip.Addr) (ctx context.Context, end func()) {
	ctx, cancel := context.WithTimeout(parent, streamLife)
	one := &stream{peer, cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, one)
	if loser := s.crowding(peer); loser != nil {
		s.drop(loser)
	}
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(one)
	}
}

// crowding returns the stream that must end because peer has begun another one, or nil.
func (s *streams) crowding(peer netip.Addr) *stream {
	byPeer := make(map[netip.Addr]int)
	most := 0
	for _, one := range s.open {
		byPeer[one.peer]++
		most = max(most, byPeer[one.peer])
	}
	for _, one := range s.open {
		switch {
		case byPeer[peer] > maxPeerStreams && one.peer == peer:
			return one
		case byPeer[peer] <= maxPeerStreams && len(s.open) > maxStreams && byPeer[one.peer] == most:
			return one
		}
	}
	return nil
}

// drop ends a stream that has not ended yet. s.mu is held.
func (s *streams) drop(one *stream) {
	one.cancel()
	s.open = slices.DeleteFunc(s.open, func(other *stream) bool { return other == one })
}
