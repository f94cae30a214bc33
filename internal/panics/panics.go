// Package panics keeps a panic within the exchange that caused it. A panic that no function of
// its goroutine recovers ends the process, and with it every other exchange. So each goroutine,
// timer and callback of the gateway begins with [Catch] or [Into], or runs in [Keep]; a test of
// this package finds those that do not.
//
// Each caught panic is counted by its [Part] and told to the function given to [Notify]. The report
// never holds bytes of a caller. It has the text of a runtime error, the type of any other panic
// value, and the functions, files and lines of the stack without arguments.
//
// Nothing can recover from a fatal error of the runtime, such as a concurrent write to a map.
package panics

import (
	"context"
	"fmt"
	"os"
	"path"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Part is a part of the gateway, for counting its panics.
type Part uint8

// The parts.
const (
	Handler   Part = iota // handlers of requests
	Client                // connections of clients
	Exchange              // timers and watches of one exchange
	Upload                // bodies on their way to a service
	Tunnel                // upgraded connections
	Upstream              // look-ups of names and kept connections
	Health                // health checks
	Discovery             // containers and their labels
	Redis                 // commands, replies and probes
	Feed                  // messages between gateways
	Tokens                // watched tokens
	Limits                // settled rates
	IDs                   // the lease and the pace of the id generator
	Log                   // log lines
	Gateway               // listeners, configuration and other background work
	parts                 // number of parts
)

var names = [parts]string{
	"handler", "client", "exchange", "upload", "tunnel", "upstream", "health", "discovery", "redis", "feed", "tokens",
	"limits", "ids", "log", "gateway",
}

// String returns the name of p, which is the value of a metric label.
func (p Part) String() string { return names[p] }

// Parts returns every part.
func Parts() []Part {
	all := make([]Part, parts)
	for i := range all {
		all[i] = Part(i)
	}
	return all
}

var counts [parts]atomic.Uint64

// Count returns how many panics were caught in p since the process started.
func Count(p Part) uint64 { return counts[p].Load() }

// Panic is a caught panic. It is an error for everything that waits for the goroutine.
type Panic struct {
	Part Part
	// Stack holds the functions and lines that led to the panic, the innermost first. It is empty
	// if this place was reported less than a minute ago.
	Stack string
	// Untold is the number of panics at the same place that were not reported since the last
	// report.
	Untold uint64
	what   string
}

// Error implements error. The text holds no bytes of a caller.
func (p *Panic) Error() string { return "panic in " + p.Part.String() + ": " + p.what }

var notify atomic.Pointer[func(*Panic)]

// Notify makes tell the function that reports the panics caught by [Catch], [Into] or [Keep]. A
// place is reported at most once a minute. The goroutine that panicked calls tell. Before Notify,
// panics are written to standard error.
func Notify(tell func(*Panic)) { notify.Store(&tell) }

func (p *Panic) tell() {
	if p.Stack == "" {
		return
	}
	if tell := notify.Load(); tell != nil {
		(*tell)(p)
		return
	}
	fmt.Fprintf(os.Stderr, "snowgate: %v\n%s\n", p, p.Stack)
}

// Catch recovers from a panic, counts and reports it, and calls broken with a [*Panic], if broken
// is not nil. broken ends the exchange: it closes the connection, or passes the error to everything
// that waits. A panic of broken is caught, too. Catch must be deferred directly.
func Catch(part Part, broken func(error)) {
	if value := recover(); value != nil {
		p := Caught(part, value)
		p.tell()
		p.end(broken)
	}
}

// end calls broken and catches its panics.
func (p *Panic) end(broken func(error)) {
	if broken == nil {
		return
	}
	defer Catch(p.Part, nil)
	broken(p)
}

// Into recovers from a panic, counts and reports it, and stores it in err. It must be deferred
// directly.
func Into(part Part, err *error) {
	if value := recover(); value != nil {
		p := Caught(part, value)
		p.tell()
		*err = p
	}
}

// Recovered counts and reports value, which was recovered from a panic, and returns it as an error.
// It is for deferred functions that must avoid the allocation of [Into].
func Recovered(part Part, value any) error {
	p := Caught(part, value)
	p.tell()
	return p
}

// Back-off of [Keep].
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
)

// Keep calls loop until loop returns. After a panic it pauses and calls loop again. The pause
// doubles up to 10 s, and starts again at 50 ms after loop has run for a minute. Keep returns early
// if ctx ends during a pause.
func Keep(ctx context.Context, part Part, loop func(context.Context)) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begun := time.Now()
		if once(ctx, part, loop) == nil {
			return
		}
		if time.Since(begun) > time.Minute {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func once(ctx context.Context, part Part, loop func(context.Context)) (err error) {
	defer Into(part, &err)
	loop(ctx)
	return nil
}

// Caught counts value, which was recovered from a panic, and describes it. It does not report it;
// the caller does. The caller must be the deferred function.
func Caught(part Part, value any) *Panic {
	counts[part].Add(1)
	p := &Panic{Part: part, what: describe(value)}
	at, stack := trace()
	if due, untold := due(place{part, at}, time.Now()); due {
		p.Stack, p.Untold = stack, untold
	}
	return p
}

// maxText limits the reported text of a panic's value, in bytes.
const maxText = 256

// describe returns the text of a runtime error, which has only numbers and types. For all other
// values it returns only the type, because the value may hold bytes of a caller.
func describe(value any) string {
	kind := reflect.TypeOf(value)
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	err, ok := value.(runtime.Error)
	if !ok || kind.PkgPath() != "runtime" {
		return fmt.Sprintf("a value of type %T", value)
	}
	text := strconv.QuoteToASCII(err.Error())
	text = text[1 : len(text)-1]
	return text[:min(len(text), maxText)]
}

// maxFrames limits a stack.
const maxFrames = 48

// trace returns where the panic began, which is the innermost frame outside of the runtime, and the
// stack from there on.
func trace() (at uintptr, stack string) {
	var callers [maxFrames]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	var b strings.Builder
	begun := false
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		begun = begun || frame.Function == "runtime.gopanic"
		if !begun || at == 0 && strings.HasPrefix(frame.Function, "runtime.") {
			continue // frames of the recovering function or of the runtime
		}
		if at == 0 {
			at = frame.PC
		}
		fmt.Fprintf(&b, "%s (%s:%d)\n", frame.Function, path.Base(frame.File), frame.Line)
	}
	return at, strings.TrimSuffix(b.String(), "\n")
}

// tellAgain is the shortest time between two reports of a place.
const tellAgain = time.Minute

// places are the places where panics began, and the parts that caught them. The program's code
// limits their number.
var places struct {
	sync.Mutex
	known map[place]*telling
}

type place struct {
	part Part
	at   uintptr
}

type telling struct {
	told   time.Time
	untold uint64
}

// due reports whether to report a panic at that place, and how many were not reported.
func due(at place, now time.Time) (tell bool, untold uint64) {
	places.Lock()
	defer places.Unlock()
	one := places.known[at]
	if one == nil {
		if places.known == nil {
			places.known = make(map[place]*telling)
		}
		places.known[at] = &telling{told: now}
		return true, 0
	}
	if now.Sub(one.told) < tellAgain {
		one.untold++
		return false, 0
	}
	untold = one.untold
	one.told, one.untold = now, 0
	return true, untold
}

// Forget makes every place be reported again. It is for tests that run more than once in one
// process.
func Forget() {
	places.Lock()
	defer places.Unlock()
	clear(places.known)
}
