/*
 * Model of how snowgate keeps ids apart: one worker number in Redis, several
 * processes that want it, and everything that can go wrong. It follows
 * idgen/redislease/lua/*.lua line by line; docs/explained/uniqueness.md has the argument
 * in words. Run ./check; it also runs variants with one rule left out, which
 * must fail (the #ifdefs).
 *
 * What is asserted: no timestamp is used by two holders of the number.
 *
 * What makes it small. Ids of different numbers never meet, so one number is
 * enough. Only one timestamp X is watched, chosen at the start from all there
 * are: what holds for every X holds for all of them together. A holder may use X
 * at any moment at which X lies in its range [floor, ceiling], so its clock may
 * show anything at any time, and a pause is a process that is not scheduled.
 * Anybody may take the number from anybody at any time, which covers leases that
 * end, addresses that are used again, and two gateways on one address. That a
 * nonce rotates matters only against clones, about which nothing is promised: a
 * nonce is a process here, until it crashes, releases the number or loses it. So
 * a holder may return here to any record of its own that is still there, also to
 * an older one: to more than extend.lua accepts.
 *
 * So nothing is said here about the clock that stamps ids, and whatever is checked
 * holds for the clock of the host as for that of Redis, right, wrong or stepped, at
 * any moment: also between the two halves of a take-over, when a successor has asked
 * for the number and has not heard of it yet. The policies that go back with the clock,
 * count and ring, use a timestamp a second time and tell the ids apart by a rollback
 * value or by what a slot has left. Both end with the process, and a successor begins
 * with the same. So the worst is assumed: that any two holders stamp the same rollback
 * value and sequence. What keeps their ids apart is that they, too, stay in
 * [floor, ceiling], where a holder may use X as often as it likes. COUNT_BELOW_FLOOR
 * leaves the floor out, HOST_CEILING has ceilings granted by the clock of the host:
 * both must fail.
 *
 * With STEPS, the clock of Redis itself steps back, without a loss of data: nothing is
 * repeated. If Redis forgets before it has caught up, base is too low (see begin): a
 * limit, which fails.
 *
 * What is left out. A holder may return to its record after a loss of data if its
 * lease has not ended, because until then the number is given to nobody else. Two
 * things break this, and both then need Redis to go back to the old record: a
 * take-over at the same address (LIMIT_SAME_ADDRESS), and an earlier loss of data
 * in which the lease was lost. In these cases, and only in these, the record that
 * comes back is no holder's any more (see disown); with the limit compiled in it
 * is, and the model fails. docs/explained/uniqueness.md has them under "What is not
 * promised".
 *
 * With LEASES, leases are what they are in Redis, and nothing is left out: nobody
 * takes a number whose lease has not ended. Then the model fails if leases may get
 * lost, and holds if losses of data leave them (WHOLE); not so if each new term
 * drops them (FORGET_LEASES).
 */

#ifndef N
#define N 3      /* processes */
#endif
#ifndef END
#define END 10   /* how long time runs */
#endif
#ifndef FAULTS
#define FAULTS 2 /* how often Redis forgets, besides being empty at first */
#endif
#ifndef TTL
#define TTL 5    /* of a lease: with 4 or less, nobody would return who could not re-claim */
#endif
#ifndef EMPTY
#define EMPTY 1  /* Redis is empty at first, so there is a quarantine; 0: in use for long */
#endif
#ifndef STEPS
#define STEPS 0  /* how often the clock of Redis steps back */
#endif
#define BACK 3   /* by how much: more than the lead */
#define LEAD 2   /* how far ahead of Redis time a ceiling may be */
#define SKEW 1   /* between the clocks of two Redis nodes */
#define LAST (END + SKEW + LEAD) /* latest timestamp there can be */

#define NOBODY 0
#define DEAD   (N + 1) /* crashed processes; processes are 1 to N */

/* The world. */
byte now = 1;
byte ahead = 0;      /* of the clock of the present Redis node, up to SKEW */
byte X;              /* the timestamp that is watched */
byte user = NOBODY;  /* who used it */

/* The registry: one record and the meta field. */
bool known = false;  /* the meta field is there and names the present node */
byte base;           /* nothing granted before this term is above it */
bool held = false;   /* the record is of this term, and not released */
byte nonce;          /* whose it is; NOBODY after a release */
byte low, high = 0;  /* floor and ceiling */

/* An earlier record, to which Redis may go back, if it is of a living holder. */
byte keptNonce = NOBODY; /* there is none */
byte keptHigh;

#ifdef LEASES
byte until = 0;          /* when the lease ends, on the clock of Redis */
byte keptUntil;
#define LEASE(end) until = end
#define KEEP(end) keptUntil = end
#else
#define LEASE(end) skip
#define KEEP(end) skip
#endif

/* A request of a crashed process that Redis has not executed yet. */
bool ghost = false;
byte ghostLow, ghostHigh;

#define R (now + ahead) /* Redis TIME */

inline max(to, a, b) { if :: (a) > (b) -> to = a :: else -> to = b fi }

inline open() {                       /* open and begin, registry.lua */
  if
  :: known -> skip
  :: else ->
     known = true; held = false;
#ifdef FORGET_LEASES
     LEASE(0);
#endif
#ifdef NO_QUARANTINE
     base = 0
#elif defined NO_SKEW
     base = R + LEAD
#else
     base = R + LEAD + SKEW
#endif
  fi
}

inline raise() {                      /* raise, registry.lua */
#ifdef EARLY_CEILING
  max(high, high, R + LEAD)
#elif defined HOST_CEILING
  if
  :: R >= low -> max(high, high, R + LEAD)
  :: R >= low -> high = LAST            /* the host is far ahead */
  :: else -> skip
  fi
#else
  if
  :: R >= low -> max(high, high, R + LEAD)
  :: else -> skip
  fi
#endif
}

inline acquire(who) {                 /* acquire.lua */
  open();
  if
  :: R < base -> skip                 /* quarantine */
#ifdef LEASES
  :: R >= base && R < until && !(held && nonce == who) -> skip /* somebody's */
#endif
  :: else ->
     if
     :: held && nonce == who -> skip  /* repeated after a lost reply */
     :: else ->
        max(high, high, base);
#ifdef OWN_CLOCK
        low = R
#else
        low = high + 1
#endif
     fi;
     held = true; nonce = who;
     disown(who);
     LEASE(R + TTL);
     raise()
  fi
}

/* Until when a lease is believed that was written with this ceiling. It ended
   no earlier than SKEW before that: a ceiling may come from another clock. */
#define ENDS(ceiling) ((ceiling) - LEAD + TTL)

inline discard() { keptNonce = NOBODY; keptHigh = 0; KEEP(0) }

/* The number goes to somebody else before the lease of the kept record ends. */
inline disown(who) {
#if defined LEASES || defined LIMIT_SAME_ADDRESS
  skip
#else
  if
  :: keptNonce != who && R + SKEW < ENDS(keptHigh) -> discard()
  :: else -> skip
  fi
#endif
}

inline extend(who, floor, ceiling, ok) { /* extend.lua */
  open();
  ok = true;
  if
#ifdef NO_OWNER_CHECK
  :: held -> nonce = who
#else
  :: held -> ok = (nonce == who)
#endif
#ifdef NO_NONCE
  :: !held && R + 2 * SKEW < ENDS(high) ->
#elif defined NO_LEASE_END
  :: !held && nonce == who ->
#else
  :: !held && nonce == who && R + 2 * SKEW < ENDS(high) -> /* it returns */
#endif
#ifdef REACHES_RETURN
     assert(who == DEAD || user != who || ceiling >= R + SKEW); /* false, as REACHES_RECLAIM */
#endif
     held = true; nonce = who; low = floor;
     max(high, high, ceiling);
     disown(who)
  :: else ->
#ifdef BLIND_RECLAIM
     if
     :: floor > ceiling || R >= base -> ok = false
#elif defined NO_SKEW
     if
     :: floor > ceiling || R >= base || ceiling < R -> ok = false
#else
     if
     :: floor > ceiling || R >= base || ceiling < R + SKEW -> ok = false
#endif
     :: else ->
#ifdef REACHES_RECLAIM
        assert(who == DEAD || user != who); /* false: shows that holders do get here */
#endif
        held = true; nonce = who; low = floor;
        max(high, high, ceiling);
        disown(who)
     fi
  fi;
  if :: ok -> LEASE(R + TTL); raise() :: else -> skip fi
}

/* A nonce that nobody has any more, except for requests under way. */
inline retire(who) {
  if :: nonce == who -> nonce = DEAD :: else -> skip fi;
  if :: keptNonce == who -> discard() :: else -> skip fi
}

/* A new grant, or a crash, is a new holder: what was used before is foreign. */
inline renounce(who) {
  if :: user == who -> user = DEAD :: else -> skip fi
}

proctype Gateway(byte me) {
  byte floor = 1, ceiling = 0; /* what this holder believes to have: nothing */
  bool wanted = true;          /* a number is to be acquired */
  bool reply = false, ok;      /* an answer is under way */
  byte newFloor, newCeiling, mark;

  do
  /* The generator, under any policy: its clock shows X, now or once more. */
#ifdef COUNT_BELOW_FLOOR
  :: atomic { X <= ceiling ->
#else
  :: atomic { floor <= X && X <= ceiling ->
#endif
       assert(user == NOBODY || user == me);
       user = me }

  /* Redis executes our request. We hear of it later, or never. */
  :: atomic { wanted && !reply ->
       acquire(me);
       if
       :: held && nonce == me && low <= high ->
          reply = true; newFloor = low; newCeiling = high
       :: else -> skip
       fi }
  :: atomic { !wanted && !reply ->
       extend(me, floor, ceiling, ok);
       if
       :: !ok -> retire(me); wanted = true /* what lies below the ceiling is still used up */
       :: ok && low <= high -> reply = true; newFloor = low; newCeiling = high
       :: else -> skip
       fi }
  :: atomic { reply ->
       reply = false;
       if
       :: wanted -> renounce(me); wanted = false; floor = newFloor; ceiling = newCeiling
       :: else -> max(ceiling, ceiling, newCeiling)
       fi;
       newFloor = 0; newCeiling = 0 }
  :: atomic { reply -> reply = false; newFloor = 0; newCeiling = 0 }

  /* Shutdown, with the last timestamp used as the final mark. */
  :: atomic { !wanted && !reply ->
       mark = floor - 1;
       do
       :: mark < ceiling -> mark++
       :: mark >= X || user != me -> break
       od;
       open();
       if
       :: held && nonce == me ->
          held = false; nonce = NOBODY; LEASE(R);
          if :: mark < high -> high = mark :: else -> skip fi;
          if :: high < low - 1 -> high = low - 1 :: else -> skip fi
       :: else -> skip
       fi;
       mark = 0; retire(me); renounce(me); floor = 1; ceiling = 0; wanted = true }

  /* A crash, maybe with a request on its way to Redis, and a new start. */
  :: atomic { true ->
       retire(me);
       if
       :: !ghost -> ghost = true; ghostLow = floor; ghostHigh = ceiling
       :: true -> skip
       fi;
       renounce(me);
       floor = 1; ceiling = 0; wanted = true;
       reply = false; newFloor = 0; newCeiling = 0 }
  od
}

/* A request that is executed after its sender has gone. */
proctype Network() {
  bool ok;
  do
  :: atomic { ghost ->
       if
       :: true -> acquire(DEAD)
       :: true -> extend(DEAD, ghostLow, ghostHigh, ok)
       fi;
       ghost = false; ghostLow = 0; ghostHigh = 0; ok = false }
  od
}

/* Time passes; Redis is restarted with its data, or with older data, or without,
   and may be another node by now, with another clock. */
proctype World() {
  byte faults = 0;
#if STEPS
  byte steps = 0;
#endif
  do
  :: atomic { now < END -> now++ }
#if STEPS
  :: atomic { steps < STEPS && now > BACK -> now = now - BACK; steps++ }
#endif
  :: atomic { faults < FAULTS && keptNonce == NOBODY && nonce != NOBODY && nonce != DEAD ->
       keptNonce = nonce; keptHigh = high; KEEP(until) }
  :: atomic { faults < FAULTS ->
       faults++;
       known = false; held = false; low = 0;
       if
       :: true -> skip
#ifndef WHOLE
       :: nonce = NOBODY; LEASE(0)
       :: nonce = NOBODY; high = 0; LEASE(0)
#endif
       :: keptNonce != NOBODY -> nonce = keptNonce; high = keptHigh; LEASE(keptUntil)
       fi;
       if :: faults == FAULTS -> discard() :: else -> skip fi;
       if :: ahead = 0 :: ahead = SKEW fi }
  od
}

init {
  byte i;
  atomic {
#ifdef WATCH /* one is enough to show a failure */
    X = WATCH;
#else
    select(X : 1 .. LAST);
#endif
    if :: ahead = 0 :: ahead = SKEW fi;
    known = EMPTY == 0;
    for (i : 1 .. N) { run Gateway(i) }
    run Network();
    run World()
  }
}
