package proxy

import (
	"net"
	"time"

	"snowgate/integration/cuttest"
)

// SetClock has r tell the time by now. It must be called before the first table.
func SetClock(r *Router, now func() time.Time) { r.fleet.now = now }

// SetDial has connections to replicas opened by dial. It must be called before the
// first table.
func SetDial(r *Router, dial dialer) { r.fleet.dial = dial }

// CutReads has what comes from services read in pieces, in the mode of the process.
func CutReads() {
	dialService = cuttest.Dialer((&net.Dialer{KeepAlive: keepAliveInterval}).DialContext)
}

// HastyDial is how long a connection may take to be made while there are other
// replicas.
const HastyDial = hastyDialTimeout

// LookAgain is how old the addresses of a name may be.
const LookAgain = resolveEvery

// UseStandard has services that speak HTTP/1.1 without TLS asked by way of net/http too.
func UseStandard() {
	transportOfPlain = func(address string, dial dialer) transport { return newStandard(address, http11, dial) }
}

// KeepTurns has replicas chosen in the order of the route, as clients cannot know it. The
// function that it returns ends that.
func KeepTurns() (end func()) {
	before := startOf
	startOf = func(uint64) uint64 { return 0 }
	return func() { startOf = before }
}
