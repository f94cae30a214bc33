package gateway

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"snowgate/internal/deadline"
)

const (
	// heapRoom is the least number of bytes by which the heap may grow before it is collected. Go
	// lets it double; a gateway has little in memory that lives, and would collect it dozens of
	// times in a second. More than this saves nothing that could be measured, and stays resident.
	heapRoom = 16 << 20
	// scannedRoom is how many times the scanned bytes the heap may grow by, at least, before the
	// next collection. Go's default is one time all live bytes. With 100 000 clients a collection
	// takes so long that a request would cost a tenth more than with few. Memory without pointers,
	// such as the cached tokens, is not scanned, so it does not count here.
	scannedRoom = 3
	// limitShare is the part of the container's memory that the Go runtime is told
	// to stay within; it does not count the program text and the kernel's buffers.
	limitShare = 0.9
	// slackKept is how many bytes of unneeded memory are not returned to the system.
	slackKept = 16 << 20
	// quietTime is the time without a collection after which the gateway counts as idle.
	quietTime = 10 * time.Second
	// restGain is about how many bytes a connection frees when it goes to rest.
	restGain = 16 << 10
)

// ManageMemory tells the garbage collector how much memory it may use: what the
// container may, unless GOMEMLIMIT says something else; and makes it collect
// small heaps less often, unless GOGC says how often. It is for processes that
// serve.
func ManageMemory(logs *Logs) {
	log := logs.main
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT is not set
		limit, err := memlimit.FromCgroup()
		if err == nil && limit < math.MaxInt64 {
			debug.SetMemoryLimit(int64(float64(limit) * limitShare))
			log.Info().Uint64("bytes", limit).Msg("the memory of the container bounds the heap")
		} else {
			log.Debug().Err(err).Msg("the memory of the container is not bounded")
		}
	}
	if gauges()[gcPercent] == 100 { // GOGC is not set
		afterCollection(keepRoom)
	}
}

// The figures of the runtime that memory is managed by.
const (
	gcPercent  = "/gc/gogc:percent"
	gcCycles   = "/gc/cycles/total:gc-cycles"
	heapLive   = "/gc/heap/live:bytes"
	heapScan   = "/gc/scan/heap:bytes" // what of the heap may hold pointers
	heapAll    = "/memory/classes/heap/objects:bytes"
	heapFree   = "/memory/classes/heap/free:bytes" // but not given back
	gcsStacks  = "/gc/scan/stack:bytes"
	gcsGlobals = "/gc/scan/globals:bytes"
)

// gauges reads them.
func gauges() map[string]uint64 {
	names := [...]string{gcPercent, gcCycles, heapLive, heapScan, heapAll, heapFree, gcsStacks, gcsGlobals}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	values := make(map[string]uint64, len(names))
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			values[s.Name] = s.Value.Uint64()
		}
	}
	return values
}

// keepRoom sets the percentage by which the heap may grow until the next
// collection, unless it is about right.
func keepRoom() {
	now := gauges()
	others := now[gcsStacks] + now[gcsGlobals]
	if percent := roomPercent(now[heapLive]+others, now[heapScan]+others); !about(percent, int(now[gcPercent])) {
		debug.SetGCPercent(percent)
	}
}

// roomPercent returns the percentage of the live heap that equals heapRoom, or scannedRoom times
// the scanned bytes if that is more.
func roomPercent(living, scanned uint64) int {
	return int(max(1, 100*max(heapRoom, scannedRoom*scanned)/max(living, 1<<20)))
}

// about reports whether a and b differ by less than an eighth, for which the runtime need not
// plan its collections anew.
func about(a, b int) bool { return max(a, b)-min(a, b) <= b/8 }

// afterCollection calls f after every garbage collection from now on.
func afterCollection(f func()) {
	type sentinel struct{ *sentinel } // with a pointer, so that it is collected by itself
	runtime.AddCleanup(new(sentinel), func(f func()) {
		f()
		afterCollection(f)
	}, f)
}

// giveBack returns memory that is not needed any more to the system when little is going on, as
// after a flood of connections, until ctx ends. The runtime itself keeps the memory of a peak for
// many minutes. rested returns how many connections have gone to rest so far: no collection has
// freed yet what they leave behind.
func giveBack(ctx context.Context, rested func() uint64) {
	before, seen := gauges(), uint64(0)
	for deadline.Sleep(ctx, quietTime) == nil {
		now, count := gauges(), rested()
		if now[gcCycles] == before[gcCycles] && slack(now)+(count-seen)*restGain > slackKept {
			runtime.GC() // what is in a sync.Pool survives the first
			debug.FreeOSMemory()
			seen = count
		}
		before = now
	}
}

// slack estimates how many bytes would be free after a collection.
func slack(now map[string]uint64) uint64 {
	garbage := now[heapAll] - min(now[heapAll], now[heapLive])
	return now[heapFree] + garbage
}
