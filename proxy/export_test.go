package proxy

import "time"

// SetClock has r tell the time by now. It must be called before the first table.
func SetClock(r *Router, now func() time.Time) { r.fleet.now = now }

// LookAgain is how old the addresses of a name may be.
const LookAgain = resolveEvery
