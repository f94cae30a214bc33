package proxy

import (
	"context"

	"snowgate/internal/cohort"
	"snowgate/proxy/http1"
)

// attempt is one try to get a response from one replica: what a [transport] has to know of it, and what
// it tells. It knows nothing of other attempts, and nothing of the client.
type attempt struct {
	lease
	request  *http1.Request
	body     *clientBody // of request, for its trailer; nil: there is none
	lifetime *lifetime   // ends the attempt early
	gather   *cohort.Cohort
	call     *http1.Call // memory for the call; nil: none is there yet
	fresh    bool        // send it on a new connection
	repeats  repeats

	reused   bool // told: the connection had carried other requests
	heard    bool // told: a byte of a response came back
	stale    bool // told: the service may have closed the connection, which was kept, just then
	repeated bool // told: the transport has sent the request twice
	haste    haste
}

// repeats says what a transport that repeats requests by itself may do.
type repeats struct {
	would bool // net/http would send the request again although the service may have seen it
	may   bool // that may be, once
}

// dialing returns the context in which a connection for the attempt is made: ctx, with the word for
// [inTime].
func (a *attempt) dialing(ctx context.Context) context.Context {
	if !a.others {
		return ctx
	}
	a.haste = haste{ctx}
	return &a.haste
}
