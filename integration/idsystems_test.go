package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/idgen"
	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// The words of docs/reference/ids.md for the behaviour of a gateway when its clock steps back.
const (
	waits   = "waits"
	rides   = "rides through"
	slews   = "slews"
	ringsOn = "goes on in the ring"
	counts  = "counts, rollback %d"
	refuses = "503 “%s” until the clock is back"
	stays   = "503 “%s” until a restart"
)

const (
	reasonBehind = "the clock is behind ids that were issued"
	reasonFull   = "the clock stepped back more often than ids can count"
)

// stepsBack are the columns of the table.
var stepsBack = []time.Duration{2 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second, time.Hour}

// idSystems are the rows: the files of deploy/id-systems, and none for the default.
var idSystems = []string{"A", "B", "C", "D", "E", "default"}

// systemEnv returns the variables of a system's file.
func systemEnv(t *testing.T, system string) []string {
	t.Helper()
	if system == "default" {
		return []string{"SNOWGATE_WORKER_ID=auto"} // not that of the other tests
	}
	text, err := os.ReadFile(filepath.Join("..", "deploy", "id-systems", strings.ToLower(system)+".env"))
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			env = append(env, line)
		}
	}
	return env
}

// systemWorker returns the datacenter and worker number that a system comes to on a Redis that is new.
func systemWorker(t *testing.T, system, redis string) idgen.Worker {
	t.Helper()
	switch system {
	case "B":
		return idgen.Worker{Number: 0} // the first that is free
	case "C":
		return idgen.Worker{Datacenter: 2, Number: 3}
	case "D":
		return idgen.Worker{Datacenter: 0, Number: 1}
	case "E":
		return idgen.Worker{Number: 1} // the first of the counter
	}
	address, err := idgen.LocalIPv4(t.Context(), redis)
	if err != nil {
		t.Fatal(err)
	}
	octet, err := idgen.LastOctet(address)
	if err != nil {
		t.Fatal(err)
	}
	return idgen.Worker{Number: octet}
}

// stampClock is the clock that stamps ids: the host's or that of Redis.
type stampClock struct {
	mu     sync.Mutex
	move   func(time.Duration)
	offset time.Duration
	steps  []time.Time     // when it was set
	moves  []time.Duration // and to how far from the right time
}

func (c *stampClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.move(d)
	c.offset += d
	c.steps, c.moves = append(c.steps, time.Now()), append(c.moves, c.offset)
}

// after returns how far the clock was from the right time after n steps.
func (c *stampClock) after(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return c.moves[n-1]
}

// now returns what the clock shows, and how often it was set so far.
func (c *stampClock) now() (shown time.Time, steps int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset), len(c.steps)
}

// attempt is one request for a token and what came of it.
type attempt struct {
	sent, got           time.Time // by the clock that stamps
	sentAt, gotAt       time.Time // by a clock that is right
	sentSteps, gotSteps int       // how often the clock was set before
	id                  idgen.ID
	parts               idgen.Parts
	refusal             string // why there is no id
}

func (a attempt) String() string {
	const clock = "15:04:05.000"
	return fmt.Sprintf("%s %s %s/%d/%d/%d/%d %q, sent %s after %d steps, got %s after %d", a.sentAt.Format(clock), a.id,
		a.parts.Time.Format(clock), a.parts.Datacenter, a.parts.Worker, a.parts.Rollback, a.parts.Sequence, a.refusal,
		a.sent.UTC().Format(clock), a.sentSteps, a.got.UTC().Format(clock), a.gotSteps)
}

func (a attempt) overlapsAStep() bool { return a.sentSteps != a.gotSteps }

// systemScene is a gateway with one of the systems, on a clock that the test sets. It has had its
// worker number for two hours, so that the clock can be set back by one.
type systemScene struct {
	*gatewaytest.Gateway
	t      *testing.T
	system string
	scheme idgen.Scheme
	clock  *stampClock
	client gatewaytest.Credentials
	http   *http.Client
	start  func() *gatewaytest.Gateway
	worker idgen.Worker
	lag    time.Duration // by how much stamps may be off the clock
	notice time.Duration // how long the gateway may take to see a step
	faults int

	mu       sync.Mutex
	earlier  []attempt // before the first step
	attempts []attempt
	token    string // the last one
}

func newSystemScene(t *testing.T, system, clock string) *systemScene {
	t.Helper()
	const age = 2 * time.Hour
	redis := redistest.StartWithClock(t)
	redis.StepClock(-age)
	env := append(systemEnv(t, system), "SNOWGATE_ID_CLOCK="+clock, "SNOWGATE_REDIS_URL="+redis.URL(),
		"SNOWGATE_STORE_TIMEOUT=5s") // what is asked is what happens, not how fast a busy machine is
	layout := idgen.LayoutDefault
	if text := valueOf(env, "SNOWGATE_ID_LAYOUT"); text != "" {
		var err error
		if layout, err = idgen.ParseLayout(text); err != nil {
			t.Fatal(err)
		}
	}
	scheme, err := idgen.NewScheme(layout, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	s := &systemScene{
		t: t, system: system, scheme: scheme, client: gatewaytest.NewClient("worker", "a", "introspect: true"),
		http:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		worker: systemWorker(t, system, strings.TrimPrefix(redis.URL(), "redis://")),
		lag:    10 * time.Millisecond, // docs/reference/ids.md: at most that late, and 5 ms early
	}
	t.Cleanup(s.http.CloseIdleConnections)
	if clock == "redis" {
		s.lag, s.notice = 300*time.Millisecond, noticeTime // docs/reference/ids.md: 250 ms
	}
	s.clock = &stampClock{move: redis.StepClock}
	options := gatewaytest.Options{Config: "clients:\n" + s.client.YAML, Env: env}
	if clock == "host" {
		options.HostClock = gatewaytest.NewHostClock(t)
		options.HostClock.Step(-age)
		s.clock.move = options.HostClock.Step
	}
	s.start = func() *gatewaytest.Gateway { return gatewaytest.Start(t, options) }
	s.Gateway = s.start()
	redis.StepClock(age)
	if clock == "host" {
		options.HostClock.Step(age)
	}
	gatewaytest.Eventually(t, followTime, "tokens are issued two hours later", func() bool {
		a := s.try()
		return a.refusal == "" && a.parts.Time.After(time.Now().Add(-time.Minute))
	})
	s.earlier, s.attempts = s.attempts, nil
	return s
}

// try asks for a token. A refusal must be the one that is due while no id can be had.
func (s *systemScene) try() (a attempt) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.URL+"/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		s.t.Error(err)
		return a
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(s.client.ID, s.client.Secret)
	a.sentAt = time.Now()
	a.sent, a.sentSteps = s.clock.now()
	response, err := s.http.Do(request)
	if err != nil {
		s.t.Error(err)
		return a
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	a.got, a.gotSteps = s.clock.now()
	a.gotAt = time.Now()
	var answer struct {
		Token       string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	switch {
	case err == nil && response.StatusCode == http.StatusOK:
		a.id, err = idgen.Parse(publicID(answer.Token))
	case err == nil && response.StatusCode == http.StatusServiceUnavailable && answer.Error == "temporarily_unavailable" && response.Header.Get("Retry-After") != "":
		var known bool
		if a.refusal, known = strings.CutPrefix(answer.Description, "No token can be issued at the moment: "); !known {
			s.t.Errorf("POST /oauth2/token = %d %s, want the reason", response.StatusCode, body)
		}
		a.refusal = strings.TrimSuffix(a.refusal, ".")
	default:
		s.t.Errorf("POST /oauth2/token = %d %s, want 200, or 503 temporarily_unavailable with Retry-After", response.StatusCode, body)
	}
	if err == nil && a.id != 0 {
		a.parts, err = s.scheme.Decompose(a.id)
	}
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, a)
	if a.id != 0 {
		s.token = answer.Token
	}
	return a
}

// hammer asks for tokens from three sides until stop is called: all the time, to have ids on either
// side of a small step, or, where steps take their time to be noticed, at some distance.
func (s *systemScene) hammer() (stop func()) {
	done := make(chan struct{})
	turns := time.NewTicker(20 * time.Millisecond)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				s.try()
				turn := turns.C
				if s.notice == 0 {
					turn = always
				}
				select {
				case <-done:
					return
				case <-turn:
				}
			}
		})
	}
	return func() { close(done); wg.Wait(); turns.Stop() }
}

// always can be received from at once.
var always = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// settle waits until a number of requests was made since the last step and answered; seen, if given,
// ends that at once, and without it the gateway has the time to notice the step.
func (s *systemScene) settle(seen func(since []attempt) bool) {
	s.t.Helper()
	const enough = 24
	_, steps := s.clock.now()
	began := time.Now()
	gatewaytest.Eventually(s.t, 4*patience, "requests are answered", func() bool {
		since := s.since(steps)
		n := 0
		for _, a := range since {
			if !a.overlapsAStep() {
				n++
			}
		}
		return n >= enough && (seen == nil || seen(since) || time.Since(began) > s.notice)
	})
}

// since returns the attempts that were answered after that many steps, the last response first.
func (s *systemScene) since(steps int) []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []attempt
	for _, a := range slices.Backward(s.attempts) {
		if a.gotSteps < steps-1 {
			break
		}
		if a.gotSteps >= steps {
			list = append(list, a)
		}
	}
	return list
}

// rollback is the highest count of steps in an id.
func (s *systemScene) rollback() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempts {
		n = max(n, a.parts.Rollback)
	}
	return n
}

// stepBack sets the clock back while tokens are issued, and returns what the gateway makes of it. A
// small step may fall between two ids, where it disturbs nobody: then it is made again.
func (s *systemScene) stepBack(d time.Duration) string {
	s.t.Helper()
	const tries = 100
	for range tries {
		rollback := s.rollback()
		stop := s.hammer()
		s.settle(nil)
		waited := s.Metrics().Sum("idgen_wait_seconds_total")
		s.clock.step(-d)
		refused := func(a attempt) bool { return a.refusal != "" }
		s.settle(func(since []attempt) bool { return slices.ContainsFunc(since, refused) || s.rollback() > rollback })
		stop()
		_, steps := s.clock.now()
		after := s.since(steps)
		switch first := slices.IndexFunc(after, refused); {
		case first >= 0:
			return s.refusedBy(after[first].refusal, d)
		case s.rollback() > rollback:
			return fmt.Sprintf(counts, s.rollback())
		case s.notice > 0 && d <= s.lag:
			return slews
		case s.system == "E": // that it does is what checkTimes finds out
			return ringsOn
		case s.Metrics().Sum("idgen_wait_seconds_total") > waited:
			return waits
		case s.riding(after, d):
			return rides
		}
	}
	return "does not notice"
}

// riding reports whether the ids are ahead of the clock in the end. By a small step they cannot be
// seen to be.
func (s *systemScene) riding(after []attempt, d time.Duration) bool {
	for _, a := range after[:min(8, len(after))] {
		if s.system != "default" || a.id != 0 && a.parts.Time.Sub(a.got) < d/2-s.lag {
			return false
		}
	}
	return true
}

// refusedBy finds out how long a refusal lasts.
func (s *systemScene) refusedBy(reason string, d time.Duration) string {
	s.t.Helper()
	if got := s.Get("/readyz", ""); d > time.Second && !strings.Contains(got.Body, `"issuing":{"ready":false`) {
		s.t.Errorf("%s: while ids are refused /readyz is %d %s", d, got.StatusCode, got.Body)
	}
	if d > time.Minute {
		for range 20 {
			if a := s.try(); a.refusal != reason {
				s.t.Errorf("with the clock %v back: %v, want it refused because %s", d, a, reason)
			}
		}
		s.clock.step(d)
	}
	if reason == reasonFull {
		for range 20 {
			if a := s.try(); a.refusal != reason {
				s.t.Errorf("with the clock back again: %v, want it refused because %s", a, reason)
			}
		}
		return fmt.Sprintf(stays, reason)
	}
	gatewaytest.Eventually(s.t, d+followTime, "tokens are issued again", func() bool { return s.try().refusal == "" })
	return fmt.Sprintf(refuses, reason)
}

// wantGood checks that the last token is good.
func (s *systemScene) wantGood() {
	s.t.Helper()
	if status, body := s.Post("/oauth2/introspect", s.client, "token", s.token); !strings.Contains(body, `"active":true`) {
		s.t.Errorf("introspection of a token issued just now: %d %s", status, body)
	}
}

// restart starts the gateway anew, which must issue again.
func (s *systemScene) restart() {
	s.t.Helper()
	s.Signal(os.Interrupt)
	s.Wait()
	before := s.highest()
	s.Gateway = s.start()
	if a := s.try(); a.refusal != "" || a.id <= before || a.parts.Rollback != 0 {
		s.t.Errorf("after a restart: %v, want an id above %s", a, before)
	}
}

// highest is the highest id so far.
func (s *systemScene) highest() (id idgen.ID) {
	for _, a := range s.attempts {
		id = max(id, a.id)
	}
	return id
}

// fault is for what may be wrong with many ids: only a few of them are told.
func (s *systemScene) fault(format string, args ...any) {
	s.t.Helper()
	const most = 5
	if s.faults++; s.faults <= most {
		s.t.Errorf(format, args...)
	}
}

// checkFields checks every field of every id.
func (s *systemScene) checkFields() {
	s.t.Helper()
	seen := make(map[idgen.ID]bool)
	for _, a := range s.earlier {
		seen[a.id] = true
	}
	for _, a := range s.attempts {
		if seen[a.id] && a.id != 0 {
			s.fault("the id %s was issued twice: %v", a.id, a)
		}
		seen[a.id] = true
	}
	rollbacks := s.rollbacks()
	for _, a := range s.attempts {
		if a.id == 0 {
			continue
		}
		if a.parts.Datacenter != s.worker.Datacenter || a.parts.Worker != s.worker.Number {
			s.fault("%v: want datacenter %d and worker %d", a, s.worker.Datacenter, s.worker.Number)
		}
		if least, most := rollbacks[s.known(a)], rollbacks[a.gotSteps]; a.parts.Rollback < least || a.parts.Rollback > most {
			s.fault("%v: want rollback %d to %d", a, least, most)
		}
		if p := a.parts; p.Sequence > 0 {
			p.Sequence--
			if id, err := s.scheme.Compose(p); err != nil || !seen[id] {
				s.fault("%v: the sequence number before was not issued (%v)", a, err)
			}
		}
	}
	s.checkTimes()
}

// known returns how many steps the gateway must know of when it answers a.
func (s *systemScene) known(a attempt) int {
	n := a.sentSteps
	for n > 0 && a.sentAt.Sub(s.clock.steps[n-1]) < s.notice {
		n--
	}
	return n
}

// rollbacks returns what the rollback field may be after each step: at most one more than before.
func (s *systemScene) rollbacks() map[int]int64 {
	s.t.Helper()
	known := make(map[int]int64)
	for _, a := range s.attempts {
		if a.id != 0 && !a.overlapsAStep() {
			known[a.gotSteps] = max(known[a.gotSteps], a.parts.Rollback)
		}
	}
	for n, last := 0, int64(0); n <= len(s.clock.steps); n++ {
		known[n] = max(known[n], last)
		if known[n] > last+1 {
			s.fault("step %d was counted %d times", n, known[n]-last)
		}
		last = known[n]
	}
	return known
}

// checkTimes checks the time field: it is what the clock shows, but for the policies that stay ahead
// of a clock that was set back: monotonic goes on where it was, and the ring gets no further than it
// was. With an order, ids rise.
func (s *systemScene) checkTimes() {
	s.t.Helper()
	order := s.system != "C" && s.system != "D" && s.system != "E"
	slices.SortFunc(s.attempts, func(a, b attempt) int { return a.gotAt.Compare(b.gotAt) })
	highest := make([]idgen.ID, len(s.attempts)+1) // of the first so many
	ahead := time.Duration(-1 << 62)               // of the right time
	var latest time.Time                           // stamp
	for i, a := range s.attempts {
		highest[i+1] = max(highest[i], a.id)
		if a.id == 0 {
			continue
		}
		least, most := s.shown(a)
		if late := a.gotAt.Add(ahead); s.system == "default" && late.After(most) {
			most = late
		}
		if s.system == "E" && latest.After(most) {
			most = latest
		}
		if a.parts.Time.After(latest) {
			latest = a.parts.Time
		}
		ahead = max(ahead, a.parts.Time.Sub(a.sentAt))
		if early, late := a.parts.Time.Sub(most), least.Sub(a.parts.Time); early > s.lag || late > s.lag {
			s.fault("%v: the stamp is %v too early or %v too late", a, early, late)
		}
		n, _ := slices.BinarySearchFunc(s.attempts, a.sentAt, func(b attempt, at time.Time) int { return b.gotAt.Compare(at) })
		if order && highest[n] >= a.id {
			s.fault("%v: it was issued after %s", a, highest[n])
		}
	}
}

// shown returns what the clock has shown at least and at most while a was under way, to a gateway
// that takes its time to notice steps.
func (s *systemScene) shown(a attempt) (least, most time.Time) {
	took := a.gotAt.Sub(a.sentAt)
	for n := s.known(a); n <= a.gotSteps; n++ {
		last := a.gotAt.Add(s.clock.after(n))
		if first := last.Add(-took); least.IsZero() || first.Before(least) {
			least = first
		}
		if last.After(most) {
			most = last
		}
	}
	return least, most
}

// TestEachSystemWhenTheClockStepsBack starts the gateway with each file of deploy/id-systems, sets the
// clock that stamps ids back by the steps that docs/reference/ids.md has in its tables, one after the other,
// issues tokens throughout, checks every field of every id, and holds the table against what it saw.
func TestEachSystemWhenTheClockStepsBack(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "a request takes longer than the smallest step of the clock")
	t.Parallel()
	for _, clock := range []string{"host", "redis"} {
		t.Run(clock, func(t *testing.T) { holdTable(t, clock) })
	}
}

func holdTable(t *testing.T, clock string) {
	t.Parallel()
	table := stepTable(t, clock)
	if got := len(table); got != len(idSystems) {
		t.Errorf("docs/reference/ids.md has a table of %d systems for the clock %s, want %d", got, clock, len(idSystems))
	}
	for _, system := range idSystems {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			s := newSystemScene(t, system, clock)
			var row []string
			for _, d := range stepsBack {
				row = append(row, s.stepBack(d))
				if !strings.HasSuffix(row[len(row)-1], "until a restart") {
					s.wantGood()
				}
			}
			s.checkFields()
			if strings.HasSuffix(row[len(row)-1], "until a restart") {
				s.restart()
			}
			if diff := cmp.Diff(table[system], row); diff != "" {
				t.Errorf("docs/reference/ids.md differs from what was seen (-doc +seen):\n%s\n| %s | %s |", diff, system, strings.Join(row, " | "))
			}
		})
	}
}

// stepTable returns the rows of the table in docs/reference/ids.md for a clock: the first column of its head is
// `SNOWGATE_ID_CLOCK=` and the clock.
func stepTable(t *testing.T, clock string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/ids.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "| `SNOWGATE_ID_CLOCK="+clock+"` | 2 ms | 100 ms | 3 s | 1 h |\n")
	if !found {
		t.Fatalf("docs/reference/ids.md has no table of steps for the clock %s", clock)
	}
	rows := make(map[string][]string)
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != len(stepsBack)+3 {
			break
		}
		name, _, _ := strings.Cut(strings.TrimSpace(cells[1]), " ")
		for _, cell := range cells[2 : len(cells)-1] {
			rows[name] = append(rows[name], strings.TrimSpace(cell))
		}
	}
	delete(rows, "---")
	return rows
}
