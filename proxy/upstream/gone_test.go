package upstream

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"snowgate/proxy/route"
	"snowgate/proxy/transport"
)

// An attempt to connect does not outlive the replica: who has its address next would
// get the request.
func TestNobodyConnectsToWhoIsGone(t *testing.T) {
	var f Set
	t.Cleanup(f.Close)
	newReplica := func() *upstream {
		return f.newUpstream(route.Target{Destination: transport.Destination{Scheme: "http", Host: "10.0.0.1:80", Protocol: transport.HTTP11}, Replica: route.Replica{ID: "1"}})
	}

	// It is gone while the connection is being made.
	u := newReplica()
	began := make(chan struct{})
	dial := u.whileThere(func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(began)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	go func() {
		<-began
		u.retire()
	}()
	if _, err := dial(t.Context(), "tcp", "10.0.0.1:80"); !errors.Is(err, errGone) {
		t.Errorf("gone while connecting: %v, want %v", err, errGone)
	}

	// The connection is made at the very moment.
	u = newReplica()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	dial = u.whileThere(func(context.Context, string, string) (net.Conn, error) {
		u.retire()
		return far, nil
	})
	if _, err := dial(t.Context(), "tcp", "10.0.0.1:80"); !errors.Is(err, errGone) || !transport.IsDial(err) {
		t.Errorf("gone when connected: %v, want %v while dialling", err, errGone)
	}
	_ = near.SetDeadline(time.Now().Add(time.Second))
	if _, err := near.Write([]byte("x")); err == nil {
		t.Error("the connection is still open")
	}
	if u.current(f.Time()) != nil {
		t.Error("who is gone is still a candidate")
	}
}
