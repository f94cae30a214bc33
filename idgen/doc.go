// Package idgen issues 63-bit ids that sort by time and are never issued twice,
// whatever the clock does.
//
// An id is a timestamp in milliseconds since a pinned epoch, a worker number
// and a sequence number, put side by side as a [Layout] says. A [Scheme] is a
// layout with its epoch; it composes ids and reads them. A [Generator] issues
// them, as the worker that a [Source] gives it the right to be:
//
//	scheme, err := idgen.NewScheme(idgen.LayoutDefault, epoch)
//	gen, err := idgen.New(ctx, scheme, idgen.HighWater("ids.ceiling", idgen.Fixed(idgen.Worker{Number: 7})))
//	id, err := gen.Next()
//
// # One word
//
// The state of a generator is one word, timestamp<<bits | sequence, advanced by an atomic add. The
// add returns a ticket, which belongs to the caller that drew it. The carry of a used-up sequence
// rolls into the next millisecond by itself: there is no lock, no loop and no reset. A ticket of a
// millisecond that has not come yet is waited for, asleep; one of a millisecond gone by is thrown
// away, and the word raised to the present. That is the first reason why ids differ: the word only
// rises.
//
// Stamps may be off the clock by a window, 10 ms back and 5 ms ahead, but only
// where ids are wanted faster than one millisecond provides. The part behind
// makes up for timers that fire late, the part ahead lets a burst pass without
// waiting. At lower rates every id carries the exact millisecond.
//
// Reading a clock costs more than everything else together. So it is read for
// every id at low rates, and every few milliseconds at high ones: the tickets
// that are open then are published as a limit, and drawing one below the limit
// is all that Next does. See pacer.
//
// # The ceiling
//
// A word in memory does not outlive its process, and nothing tells a process
// that it was suspended for a minute and replaced. So the right to issue is
// bounded in the ids themselves. A [Lease] grants the timestamps from a floor
// to a ceiling, which was made durable beforehand, a few seconds ahead, and is
// extended every second. The next holder of the same worker number starts above
// that ceiling. That is the second reason why ids differ: a zombie, a crashed
// process, a clock set back and a successor whose clock is behind all stay on
// their own side of it, with no assumption about how long anything takes. The
// check costs nothing, because the ceiling bounds the published limit.
//
// # Steps of the clock
//
// Where the clock reads less than before, a [Policy] decides: ride through it on
// the monotonic clock, which is the default, or wait, count, reuse or refuse.
//
// # What it cannot do
//
// It cannot issue more per millisecond than the layout has room for with honest
// stamps; sources without a ceiling ([Fixed], [Environment], [Octet]) repeat ids
// if the clock is behind after a restart; and two copies of one virtual
// machine, resumed at the same time, are one worker until the lease notices.
package idgen
