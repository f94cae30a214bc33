package redislease

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
)

// A holder is a process of its own, this test binary started again, that leases
// a number and issues ids into a file for as long as it lives.

const holderVariable = "SNOWGATE_TEST_HOLDER"

func TestMain(m *testing.M) {
	if text := os.Getenv(holderVariable); text != "" {
		os.Exit(beHolder(text))
	}
	os.Exit(m.Run())
}

// job is the configuration of a holder.
type job struct {
	URL, Address, File string
	Only               int64 // worker number; -1: any
	Lead, Skew, TTL    time.Duration
	Heartbeat          time.Duration
	Batch              int             // ids per Fill
	Own                bool            // it goes by a clock of its own, instead of following Redis
	Behind             time.Duration   // how much that is wrong at first; a negative one is ahead
	Steps              []time.Duration // by how much each SIGUSR1 sets it forward, or back if negative
	StateFile          string          // where the ceiling is kept, instead of in Redis
}

// wrong is a wall clock that is ahead by that many nanoseconds.
type wrong struct{ ahead atomic.Int64 }

func (w *wrong) Now() (int64, error) {
	return time.Now().Add(time.Duration(w.ahead.Load())).UnixMilli(), nil
}

// step changes the clock at every signal, and prints a line.
func (w *wrong) step(steps []time.Duration) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	for _, by := range steps {
		<-signals
		w.ahead.Add(int64(by))
		fmt.Println("stepped:", by)
	}
}

func beHolder(text string) int {
	go func() { // the test that started us is gone when its end of the pipe is closed
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = j.run(ctx)
	}
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

func (j job) run(ctx context.Context) error {
	g, err := j.generator(ctx)
	if err != nil {
		return err
	}
	defer g.Close(context.Background())
	file, err := os.Create(j.File)
	if err != nil {
		return err
	}
	defer file.Close()
	return j.issue(ctx, g, file)
}

func (j job) generator(ctx context.Context) (*idgen.Generator, error) {
	sc, err := idgen.NewScheme(idgen.LayoutA, epoch)
	if err != nil {
		return nil, err
	}
	report := idgen.WithReport(func(err error) { fmt.Println("report:", err) })
	own := new(wrong)
	own.ahead.Store(-int64(j.Behind))
	go own.step(j.Steps)
	if j.StateFile != "" {
		src := idgen.HighWater(j.StateFile, idgen.Fixed(idgen.Worker{Number: j.Only}))
		return idgen.New(ctx, sc, src, idgen.WithClock(own), report)
	}
	src, reference, err := j.onRedis(ctx)
	if err != nil {
		return nil, err
	}
	clock := idgen.Clock(reference)
	if j.Own {
		clock = own
	}
	return idgen.New(ctx, sc, src, idgen.WithClock(clock), idgen.WithHeartbeat(j.Heartbeat), report)
}

// onRedis returns a source and a clock on Redis that run until the process ends.
func (j job) onRedis(ctx context.Context) (*Source, *Clock, error) {
	o, err := redis.ParseURL(j.URL)
	if err != nil {
		return nil, nil, err
	}
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	choice := Any()
	if j.Only >= 0 {
		choice = Only(idgen.Worker{Number: j.Only})
	}
	src, err := New(rdb, choice, Options{
		Address: j.Address, Lead: j.Lead, Skew: j.Skew, TTL: j.TTL,
		OnEvent: func(e Event) { fmt.Println("event:", e.Kind, e.Text) },
	})
	if err != nil {
		return nil, nil, err
	}
	clock := NewClock(rdb, "")
	if err := clock.Sync(ctx); err != nil {
		return nil, nil, err
	}
	go clock.Run(ctx)
	return src, clock, nil
}

// issue issues a batch every two milliseconds. It writes every id to the file before it requests
// the next batch.
func (j job) issue(ctx context.Context, g *idgen.Generator, file *os.File) error {
	ids := make([]idgen.ID, j.Batch)
	var bytes []byte
	var refused string
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		n, err := g.Fill(ids)
		if err != nil && err.Error() != refused {
			refused = err.Error()
			fmt.Println("refused:", err)
		}
		bytes = bytes[:0]
		for _, id := range ids[:n] {
			bytes = binary.LittleEndian.AppendUint64(bytes, uint64(id))
		}
		if _, err := file.Write(bytes); err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

// holder is such a process, seen from the test.
type holder struct {
	t    *testing.T
	cmd  *exec.Cmd
	file string
	mu   sync.Mutex
	said []string
	done chan struct{} // its output has ended

	started        time.Time
	killed, paused int64 // how often it was sent SIGKILL, and SIGSTOP
}

func startHolder(t *testing.T, j job) *holder {
	t.Helper()
	h := &holder{t: t, done: make(chan struct{}), started: time.Now()}
	h.file = filepath.Join(t.TempDir(), "ids")
	j.File = h.file
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	h.cmd = exec.Command(os.Args[0])
	h.cmd.Env = append(os.Environ(), holderVariable+"="+string(text), "GOMAXPROCS=2")
	out, err := h.cmd.StdoutPipe()
	_, err2 := h.cmd.StdinPipe()
	if err := errors.Join(err, err2, h.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			h.mu.Lock()
			h.said = append(h.said, lines.Text())
			h.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill() // most often it is gone already
		<-h.done
		_ = h.cmd.Wait()
	})
	return h
}

func (h *holder) signal(s syscall.Signal) {
	h.t.Helper()
	switch s {
	case syscall.SIGKILL:
		h.killed++
	case syscall.SIGSTOP:
		h.paused++
	}
	if err := h.cmd.Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
}

// end sends a signal that ends the process, and waits for its end.
func (h *holder) end(s syscall.Signal) {
	h.t.Helper()
	h.signal(s)
	<-h.done
	if err := h.cmd.Wait(); s == syscall.SIGTERM && err != nil {
		h.t.Errorf("holder: %v\n%s", err, h.output())
	}
}

func (h *holder) output() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.said, "\n")
}

func (h *holder) says(text string) bool { return strings.Contains(h.output(), text) }

// issued returns how many ids are in the file.
func (h *holder) issued() int64 {
	info, err := os.Stat(h.file)
	if err != nil {
		return 0
	}
	return info.Size() / 8
}

func (h *holder) awaitMore(n int64) {
	h.t.Helper()
	target := h.issued() + n
	eventually(h.t, fmt.Sprintf("%d more ids of %s", n, h.cmd), func() bool { return h.issued() >= target })
}

// ids reads the file.
func (h *holder) ids() []idgen.ID {
	h.t.Helper()
	data, err := os.ReadFile(h.file)
	if err != nil {
		h.t.Fatal(err)
	}
	ids := make([]idgen.ID, 0, len(data)/8)
	for ; len(data) >= 8; data = data[8:] {
		ids = append(ids, idgen.ID(binary.LittleEndian.Uint64(data)))
	}
	return ids
}

// wantUnique fails if an id is in the files twice.
func wantUnique(t *testing.T, holders ...*holder) {
	t.Helper()
	var all []idgen.ID
	for _, h := range holders {
		ids := h.ids()
		t.Logf("%d ids", len(ids))
		all = append(all, ids...)
	}
	slices.Sort(all)
	duplicates := 0
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			duplicates++
		}
	}
	if duplicates != 0 {
		t.Errorf("%d duplicates among %d ids", duplicates, len(all))
	}
	reportUniqueness(t, len(all), duplicates, holders)
}

// reportUniqueness adds a row to the table that make uniqueness writes.
func reportUniqueness(t *testing.T, ids, duplicates int, holders []*holder) {
	t.Helper()
	name := os.Getenv("SNOWGATE_UNIQUENESS_REPORT")
	if name == "" {
		return
	}
	var killed, paused int64
	refusals := 0
	for _, h := range holders {
		killed, paused = killed+h.killed, paused+h.paused
		refusals += strings.Count(h.output(), "refused: ")
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, err = fmt.Fprintf(file, "| %d processes with `idgen`, `%s` | %.0f | %d | %d | %d | %d | %d |\n",
		len(holders), t.Name(), time.Since(holders[0].started).Seconds(), ids, killed, paused, refusals, duplicates)
	if err != nil {
		t.Error(err)
	}
}
