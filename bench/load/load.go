// Package load asks an HTTP/1.1 server for responses from one thread, in either of
// two ways: as fast as the responses come, or at a fixed rate whatever the responses
// do. It exists beside wrk and h2load because those have no fixed rate that is
// free of coordinated omission, send one request over and over, and do not hold
// ten thousand connections for later.
//
// At a fixed rate every request has an instant at which it is due, and its latency
// counts from then, as in wrk2: a server that stalls is charged for all requests
// that were due meanwhile. The loop is epoll and a timerfd on a locked thread,
// because Go's own timers are a millisecond late at times, which is more than
// what is measured.
package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Plan says what to ask for.
type Plan struct {
	Address     string // IPv4 host:port
	Connections int
	// Rate is requests per second. At 0 each connection asks as soon as it was
	// answered.
	Rate float64
	// Length is how long to ask; with Count it is an upper bound.
	Length time.Duration
	// Count ends the run after that many requests, if it is not 0.
	Count int
	// WarmUp is how long nothing is recorded at the beginning.
	WarmUp time.Duration
	// Request returns the bytes of the nth request, which stay as they are until
	// the next call.
	Request func(n int) []byte
	// Answer, if set, is called with each response and the number of its request. It
	// must not keep body.
	Answer func(n, status int, body []byte)
	// AtEnd, if set, is called when all responses are there and all connections are
	// still open.
	AtEnd func() error
}

// Result is what came of a plan.
type Result struct {
	Requests int // answered with 2xx, warm-up left out
	Length   time.Duration
	Latency  *hdrhistogram.Histogram // nanoseconds
}

// Run carries out a plan. Any response but a success is an error, and so is a
// connection that ends. It may be called at the same time for several servers.
func Run(ctx context.Context, p Plan) (Result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer uncollected()()
	l, err := newLoop(p)
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	err = l.run(ctx)
	if err == nil && p.AtEnd != nil {
		err = p.AtEnd()
	}
	return Result{Requests: l.recorded, Length: l.now.Sub(l.begun.Add(p.WarmUp)), Latency: l.latency}, err
}

// uncollected has no collection begin, which would be charged to the server, until what it returns is
// called. There may be runs at the same time.
func uncollected() (end func()) {
	runs.Lock()
	defer runs.Unlock()
	if runs.running++; runs.running == 1 {
		runs.percent = debug.SetGCPercent(-1)
	}
	return func() {
		runs.Lock()
		defer runs.Unlock()
		if runs.running--; runs.running == 0 {
			debug.SetGCPercent(runs.percent)
		}
	}
}

var runs struct {
	sync.Mutex
	running int
	percent int // as it was before the first of them
}

// loop is a run.
type loop struct {
	Plan
	epoll, timer int
	conns        []*conn
	latency      *hdrhistogram.Histogram
	begun, now   time.Time
	sent         int // requests sent or due
	recorded     int
	waiting      int // requests without a response
}

func newLoop(p Plan) (*loop, error) {
	l := &loop{Plan: p, latency: hdrhistogram.New(1_000, int64(time.Minute), 3), epoll: -1, timer: -1}
	var err error
	if l.epoll, err = unix.EpollCreate1(0); err != nil {
		return nil, err
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK); err != nil {
		l.close()
		return nil, err
	}
	if err := l.watch(l.timer, -1); err != nil {
		l.close()
		return nil, err
	}
	for i := range p.Connections {
		c, err := dial(p.Address)
		if err == nil {
			l.conns = append(l.conns, c)
			err = l.watch(c.fd, i)
		}
		if err != nil {
			l.close()
			return nil, fmt.Errorf("connection %d to %s: %w", i, p.Address, err)
		}
	}
	return l, nil
}

// watch has epoll tell when fd can be read; index says whose it is.
func (l *loop) watch(fd, index int) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)})
}

func (l *loop) close() {
	for _, c := range l.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(l.timer)
	_ = unix.Close(l.epoll)
}

// run asks until the time is up or the count is reached, and waits for what is
// under way.
func (l *loop) run(ctx context.Context) error {
	l.begun = time.Now()
	l.now = l.begun
	end := l.begun.Add(l.WarmUp + l.Length)
	events := make([]unix.EpollEvent, 256)
	if l.Rate == 0 {
		for _, c := range l.conns {
			if err := l.ask(c, l.now); err != nil {
				return err
			}
		}
	}
	for l.asking(end) || l.waiting > 0 {
		if l.Rate > 0 {
			if err := l.askDue(end); err != nil {
				return err
			}
		}
		n, err := unix.EpollWait(l.epoll, events, 1000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		l.now = time.Now()
		if err := l.serve(events[:max(n, 0)], end); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.now.After(end.Add(10 * time.Second)) {
			return fmt.Errorf("%d answers are missing 10 s after the end", l.waiting)
		}
	}
	return nil
}

// asking reports whether there is more to ask for.
func (l *loop) asking(end time.Time) bool {
	return l.now.Before(end) && (l.Count == 0 || l.sent < l.Count)
}

// serve reads what has arrived.
func (l *loop) serve(events []unix.EpollEvent, end time.Time) error {
	for _, event := range events {
		if event.Fd < 0 {
			var expirations [8]byte
			_, _ = unix.Read(l.timer, expirations[:])
			continue
		}
		if err := l.read(l.conns[event.Fd], end); err != nil {
			return err
		}
	}
	return nil
}

// askDue sends every request that is due, and sets the timer to the next one.
// Requests take turns with the connections; one whose connection still waits for
// a response is sent as soon as that has come.
func (l *loop) askDue(end time.Time) error {
	if !l.asking(end) {
		return nil
	}
	gap := time.Duration(float64(time.Second) / l.Rate)
	for {
		due := l.begun.Add(time.Duration(float64(l.sent) / l.Rate * float64(time.Second)))
		if wait := due.Sub(l.now); wait > 0 {
			spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(min(wait, gap)))}
			return unix.TimerfdSettime(l.timer, 0, &spec, nil)
		}
		if err := l.ask(l.conns[l.sent%len(l.conns)], due); err != nil {
			return err
		}
	}
}

// ask sends the next request on c, or has it wait for its turn.
func (l *loop) ask(c *conn, due time.Time) error {
	c.queue = append(c.queue, question{number: l.sent, due: due})
	l.sent++
	l.waiting++
	if len(c.queue) > 1 {
		return nil
	}
	return c.send(l.Request(c.queue[0].number))
}

// read takes answers off c and lets the next request go.
func (l *loop) read(c *conn, end time.Time) error {
	status, body, whole, err := c.receive()
	if err != nil || !whole {
		return err
	}
	question := c.queue[0]
	c.queue = c.queue[:copy(c.queue, c.queue[1:])]
	l.waiting--
	if status/100 != 2 {
		return fmt.Errorf("request %d was answered with %d %s", question.number, status, body)
	}
	if l.Answer != nil {
		l.Answer(question.number, status, body)
	}
	if question.due.Sub(l.begun) >= l.WarmUp {
		l.recorded++
		if err := l.latency.RecordValue(int64(max(l.now.Sub(question.due), time.Microsecond))); err != nil {
			return err
		}
	}
	switch {
	case len(c.queue) > 0:
		return c.send(l.Request(c.queue[0].number))
	case l.Rate == 0 && l.asking(end):
		return l.ask(c, l.now)
	default:
		return nil
	}
}
