package docker

import (
	"context"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// session is one connection to Docker.
type session struct {
	watcher *Watcher
	engine  engine

	ready  chan struct{} // the stream of events has begun
	events chan event
	ended  chan error // the stream of events has ended
	lists  chan listing

	listing bool      // a list is under way
	first   time.Time // when the first event since the last list came; zero: there was none
	due     *time.Timer
	running sync.WaitGroup
}

// session follows Docker until the connection is lost, and returns the reason.
func (w *Watcher) session(ctx context.Context) (err error) {
	defer panics.Into(panics.Discovery, &err)
	e, err := w.cfg.connect()
	if err != nil {
		return err
	}
	defer e.close()
	s := &session{
		watcher: w, engine: e,
		ready: make(chan struct{}, 1), events: make(chan event), ended: make(chan error, 1), lists: make(chan listing, 1),
		due: time.NewTimer(0),
	}
	s.due.Stop()
	defer s.due.Stop()
	defer s.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.running.Go(func() {
		defer panics.Catch(panics.Discovery, func(err error) { s.ended <- err })
		s.ended <- s.stream(ctx)
	})
	return s.watch(ctx)
}

// stream hands the events to watch.
func (s *session) stream(ctx context.Context) error {
	return s.engine.events(ctx, func() { s.ready <- struct{}{} }, func(e event) {
		select {
		case s.events <- e:
		case <-ctx.Done():
		}
	})
}

// watch handles all events and lists in one goroutine, so that the picture needs no lock.
func (s *session) watch(ctx context.Context) error {
	resync := time.NewTicker(resyncEvery)
	defer resync.Stop()
	for {
		select {
		case <-s.ready:
			s.watcher.resume()
			s.begin(ctx)
			// Docker sends the response before it has subscribed, so an event may be lost at this
			// moment. A second list follows soon.
			s.schedule(patience)
		case e := <-s.events:
			if s.watcher.note(e) {
				s.schedule(quiet)
			}
		case <-s.due.C:
			s.begin(ctx)
		case <-resync.C:
			s.begin(ctx)
		case l := <-s.lists:
			s.listing = false
			if l.err != nil {
				return l.err
			}
			s.watcher.adopt(l)
		case err := <-s.ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// schedule starts a list after d, but no later than patience after the first call since the last
// list began.
func (s *session) schedule(d time.Duration) {
	now := time.Now()
	if s.first.IsZero() {
		s.first = now
	}
	s.due.Reset(min(d, s.first.Add(patience).Sub(now)))
}

// begin starts a list. If one is under way, the new one starts later.
func (s *session) begin(ctx context.Context) {
	if s.listing {
		s.first = time.Time{}
		s.schedule(quiet)
		return
	}
	s.due.Stop()
	s.listing, s.first = true, time.Time{}
	s.watcher.begun++
	number := s.watcher.begun
	s.running.Go(func() {
		defer panics.Catch(panics.Discovery, func(err error) { s.lists <- listing{number: number, err: err} })
		s.lists <- s.watcher.list(ctx, s.engine, number)
	})
}
