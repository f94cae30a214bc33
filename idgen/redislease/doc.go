// Package redislease hands out worker numbers through Redis, and a clock that
// follows Redis.
//
// # Numbers
//
// A [Source] is an [idgen.Source]: it leases one worker number. A [Choice] says
// which: any free one (system B), a wanted one with or without a way out, or
// the one that this address keeps for ever (system E). All of them share one
// table in Redis, so gateways configured differently still never share a number.
//
// The table is the hash {prefix}:w with one record per number. The ceiling is the part of a record
// that counts: no id carries a later timestamp than it. A holder raises it every second, a lead
// ahead of Redis time, before it issues so far; the next holder starts at the ceiling + 1. So a
// holder that was stopped, cut off or cloned cannot make an id of its successor, whatever any clock
// says. The lease (60 s, renewed with every extension) only keeps living gateways from fighting
// over numbers: it may fail in any way without a duplicate.
//
// Two more rules make this hold when Redis forgets. A term begins when the
// table is empty or the replication id of Redis has changed; for a lead and
// the allowed skew nobody gets a number afresh (the quarantine), and whoever
// still has a ceiling to come re-claims its number and goes on without a pause.
// And nobody gets a ceiling before the predecessor's has passed on the clock of
// Redis, so that at most one can re-claim. docs/explained/uniqueness.md has the argument,
// docs/model/lease.pml a model of it.
//
// Each operation is one Lua script, so one round trip (lua/*.lua; they are the
// place to read the rules). They work on a standalone Redis, behind Sentinel, on
// Cluster (all keys share one hash tag) and on miniredis.
//
// # Time
//
// A [Clock] reads Redis TIME every second and follows it by slewing. The wall
// clock of the host takes no part.
package redislease
