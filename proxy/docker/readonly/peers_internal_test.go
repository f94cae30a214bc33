package readonly

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// peer returns the address of a peer.
func peer(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, n}) }

func TestStreamsHaveAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all streams
		ctx, end := all.begin(t.Context(), peer(1))
		time.Sleep(streamLife - time.Second)
		if ctx.Err() != nil {
			t.Error("it ended early")
		}
		time.Sleep(2 * time.Second)
		if ctx.Err() == nil {
			t.Error("it goes on after its life")
		}
		if end(); len(all.open) != 0 {
			t.Errorf("%d streams are kept", len(all.open))
		}
	})
}

// TestStreamsOfManyPeers: a stream of the peer with the most streams ends, and never the newest
// stream.
func TestStreamsOfManyPeers(t *testing.T) {
	var all streams
	var contexts []context.Context
	for n := range byte(maxStreams - maxPeerStreams) { // one stream each
		ctx, _ := all.begin(t.Context(), peer(10+n))
		contexts = append(contexts, ctx)
	}
	var greedy []context.Context
	for range 3 * maxPeerStreams {
		ctx, _ := all.begin(t.Context(), peer(1))
		greedy = append(greedy, ctx)
	}
	for n := range byte(100) {
		ctx, end := all.begin(t.Context(), peer(200+n%50))
		if ctx.Err() != nil || len(all.open) > maxStreams {
			t.Fatalf("a peer that came is out, or there are %d streams", len(all.open))
		}
		end()
	}
	for _, ctx := range contexts {
		if ctx.Err() != nil {
			t.Fatal("a peer with one stream had to give way to one with many")
		}
	}
	open := 0
	for _, ctx := range greedy {
		if ctx.Err() == nil {
			open++
		}
	}
	if open != maxPeerStreams-1 || greedy[len(greedy)-1].Err() != nil {
		t.Errorf("the peer with many has %d streams, want %d, the newest among them", open, maxPeerStreams-1)
	}
	for n := range byte(100) { // more peers than streams
		if ctx, _ := all.begin(t.Context(), peer(100+n)); ctx.Err() != nil || len(all.open) > maxStreams {
			t.Fatalf("a peer that came is out, or there are %d streams", len(all.open))
		}
	}
}

func TestRequestsOfOnePeer(t *testing.T) {
	var all requests
	for range maxPeerRequests {
		if !all.begin(peer(1)) {
			t.Fatal("a request is refused early")
		}
	}
	if all.begin(peer(1)) || !all.begin(peer(2)) {
		t.Error("one peer keeps another out, or has no bound")
	}
	all.end(peer(1))
	if !all.begin(peer(1)) {
		t.Error("the end of a request makes no room")
	}
	for n := range byte(maxRequests) {
		all.begin(peer(100 + n))
	}
	if all.all != maxRequests {
		t.Errorf("%d requests are under way, want at most %d", all.all, maxRequests)
	}
	for range maxPeerRequests {
		all.end(peer(1))
	}
	if _, known := all.byPeer[peer(1)]; known {
		t.Error("a peer that has left is kept")
	}
}
