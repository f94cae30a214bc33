// Package idgen issues 63-bit ids that sort by time. No id is ever issued twice, whatever the clock
// does.
//
// An id consists of a timestamp in milliseconds since a fixed epoch, a worker number and a sequence
// number. A [Layout] says how many bits each of them has. A [Scheme] is a layout with its epoch; it
// composes ids and reads them. A [Source] grants a worker number, and a [Generator] issues ids
// under that number:
//
//	scheme, err := idgen.NewScheme(idgen.LayoutDefault, epoch)
//	gen, err := idgen.New(ctx, scheme, idgen.HighWater("ids.ceiling", idgen.Fixed(idgen.Worker{Number: 7})))
//	id, err := gen.Next()
//
// # One word
//
// The state of a generator is one 64-bit word, timestamp<<bits | sequence. An atomic add advances
// it. The value that the add returns is a ticket, and the ticket belongs to the caller that drew
// it. When the sequence overflows, the carry moves the word to the next millisecond. So there is no
// lock, no loop and no reset. A caller whose ticket lies in a future millisecond sleeps until then.
// A ticket from a past millisecond is discarded, and the word is raised to the present. The word
// only rises: this is the first reason why ids differ.
//
// Timestamps may differ from the clock by a window, 10 ms back and 5 ms ahead. This happens only
// when callers want more ids than one millisecond provides. The part behind the clock makes up for
// timers that fire late. The part ahead of the clock lets a burst pass without waiting. At lower
// rates every id carries the exact millisecond.
//
// Reading the clock costs more than all other steps together. So the generator reads the clock for
// every id at low rates, and every few milliseconds at high rates. After such a reading it
// publishes a limit: tickets below the limit may be issued without reading the clock. At high rates
// Next only draws one ticket below the limit. See pacer.
//
// # The ceiling
//
// The word is lost when the process ends, and a process cannot know that it was suspended for a
// minute and replaced. So a lease bounds the timestamps that a process may use. A [Lease] grants
// the timestamps from a floor to a ceiling. The ceiling is made durable before it is used, lies a
// few seconds ahead, and is extended every second. The next holder of the same worker number starts
// above that ceiling. This is the second reason why ids differ: a suspended process, a crashed
// process, a clock that is set back and a successor whose clock is behind all stay within their own
// range. No assumption about delays is needed. The check costs nothing, because the published limit
// never exceeds the ceiling.
//
// # Steps of the clock
//
// When the clock steps back, a [Policy] decides what happens. The default continues on the
// monotonic clock; the others wait, count, reuse or refuse.
//
// # Limits
//
// With exact timestamps, a generator cannot issue more ids per millisecond than the layout has room
// for. Sources without a ceiling ([Fixed], [Environment], [Octet]) repeat ids if the clock is
// behind after a restart. Two copies of one virtual machine that are resumed at the same time act
// as one worker until the lease is checked again.
package idgen
