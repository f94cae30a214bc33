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

// Part is the part of the gateway in which a panic was caught.
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
	Feed                  // what the gateways tell each other
	Tokens                // watched tokens
	Limits                // settled rates
	IDs                   // the lease and the pace of the id generator
	Log                   // log lines
	Gateway               // listeners, configuration and what else goes on beside requests
	parts                 // their number
)

var names = [parts]string{
	"handler", "client", "exchange", "upload", "tunnel", "upstream", "health", "discovery", "redis", "feed", "tokens",
	"limits", "ids", "log", "gateway",
}

// String returns the name of p, which is the value of a label.
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

// Count returns how many panics were caught in p since the process began.
func Count(p Part) uint64 { return counts[p].Load() }

// Panic is a panic that was caught. It is an error, for whoever waits for what it has ended.
type Panic struct {
	Part Part
	// Stack holds the functions and lines that led to the panic, the innermost first. It is
	// empty if the stack of that place was told less than a minute ago.
	Stack string
	// Untold is the number of panics of the same place that were not told since the last one.
	Untold uint64
	what   string
}

// Error implements error. The text holds nothing that a caller has sent.
func (p *Panic) Error() string { return "panic in " + p.Part.String() + ": " + p.what }

var notify atomic.Pointer[func(*Panic)]

// Notify has tell called for each panic that [Catch], [Into] or [Keep] catches, unless one of the
// same place was told less than a minute ago. tell is called by the goroutine that panicked. Until
// then, panics are written to the standard error.
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

// Catch recovers from a panic, counts and tells it, and calls broken, if it is not nil, with a
// [*Panic]. broken ends the exchange: it closes the connection, or fails whoever waits. A panic of
// broken is caught as well. Catch must be deferred directly.
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

// Into recovers from a panic, counts and tells it, and puts it into err. It must be deferred
// directly.
func Into(part Part, err *error) {
	if value := recover(); value != nil {
		p := Caught(part, value)
		p.tell()
		*err = p
	}
}

// Recovered counts and tells value, which was recovered from a panic, and returns it as an error. It
// is for deferred functions that must not cost an allocation, which [Into] does.
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

// Keep calls loop until it returns. After a panic it calls loop again, after a pause that doubles
// up to 10 s, and is short again when loop has run for a minute. It returns early if ctx ends
// during a pause.
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

// Caught counts value, which was recovered from a panic, and describes it. It tells nobody: that
// is for the caller, which the deferred function must be.
func Caught(part Part, value any) *Panic {
	counts[part].Add(1)
	p := &Panic{Part: part, what: describe(value)}
	at, stack := trace()
	if due, untold := due(place{part, at}, time.Now()); due {
		p.Stack, p.Untold = stack, untold
	}
	return p
}

// maxText bounds what is told of a panic's value, in bytes.
const maxText = 256

// describe returns the text of an error of the runtime, which speaks of numbers and types, and
// the type of any other value, which may hold what a caller has sent.
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

// maxFrames bounds a stack.
const maxFrames = 48

// trace returns where the panic began, which is the innermost frame that is not of the runtime,
// and the stack from there on.
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
			continue // of whoever recovers, or of the runtime
		}
		if at == 0 {
			at = frame.PC
		}
		fmt.Fprintf(&b, "%s (%s:%d)\n", frame.Function, path.Base(frame.File), frame.Line)
	}
	return at, strings.TrimSuffix(b.String(), "\n")
}

// tellAgain is how long a place is not told again.
const tellAgain = time.Minute

// places are where panics began and who caught them. There are no more of them than the program
// has code for.
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

// due reports whether a panic at that place is to be told, and how many were not.
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

// Forget has every place told again. It is for tests that run more than once in one process.
func Forget() {
	places.Lock()
	defer places.Unlock()
	clear(places.known)
}
