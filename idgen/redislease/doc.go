// Package redislease leases worker numbers in Redis, and provides a clock that follows Redis.
//
// # Numbers
//
// A [Source] is an [idgen.Source] that leases one worker number. A [Choice] says which: any free
// one (system B), a certain one, with or without an alternative, or the one that this address keeps
// for ever (system E). All choices use one table in Redis, so two gateways never have the same
// number, even if their choices differ.
//
// The table is the hash {prefix}:w with one record for each number. The ceiling in the record
// ensures uniqueness: no id has a later timestamp. The holder of a number raises the ceiling every
// second, to a lead ahead of Redis time, before it issues ids up to it. The next holder starts at
// the ceiling + 1. So a holder that was suspended, disconnected or cloned cannot issue an id of its
// successor, whatever any clock shows. The lease (60 s, renewed whenever the ceiling is raised)
// only prevents running gateways from taking numbers from each other. If it fails, no id is
// duplicated.
//
// Two more rules ensure uniqueness when Redis loses data. First, a term begins when the table is
// empty or the replication id of Redis has changed. For a lead and the permitted skew after that,
// no gateway gets a new number (the quarantine), but a gateway whose ceiling is still in the future
// reclaims its number and continues without a pause. Second, no gateway gets a ceiling before that
// of its predecessor has passed on the clock of Redis, so at most one gateway can reclaim a number.
// docs/explained/uniqueness.md has the proof, and docs/model/lease.pml a model.
//
// Each operation is one Lua script, and so one round trip. The scripts in lua/*.lua define the
// rules. They work on a standalone Redis, with Sentinel, in a cluster (all keys have the same hash
// tag) and on miniredis.
//
// # Time
//
// A [Clock] reads Redis TIME every second and follows it by slewing. It does not use the wall clock
// of the host.
package redislease
