package route

import (
	"time"

	"github.com/rs/cors"

	"snowgate/limit"
	"snowgate/tokens"
)

// Policy are what a request must know of its route, but for who the route is and where it
// leads: the fields of the same names of [Route]. Most routes of a table say the same here, and
// have one in common ([termsOf]): of ten thousand routes, none of which is asked often, a request
// would find its own in no cache of the processor.
type Policy struct {
	Requirement       tokens.Requirement
	Public            bool
	WebSocket         bool
	PassToken         bool
	AllowEncodedSlash bool
	StripPrefix       bool
	UpstreamHost      bool
	Forwards          bool // now, or once there is a replica
	Segments          int  // in the path of the route
	Allow             methods
	Timeout           time.Duration
	MaxBody           int64
	Rate, ClientRate  limit.Rate
	AddPrefix         string
	HostHeader        string
	EditRequest       *Edits // nil: none
	EditResponse      *Edits // nil: none
	CORS              *CORS
	Cors              *cors.Cors
}

// Policies finds the terms of routes, so that those that are equal are the same.
type Policies map[Policy]*Policy

// Of returns the terms of r.
func (known Policies) Of(r *Route) *Policy {
	said := Policy{
		Requirement: r.Requirement, Public: r.Public, WebSocket: r.WebSocket, PassToken: r.PassToken,
		AllowEncodedSlash: r.AllowEncodedSlash, StripPrefix: r.StripPrefix, UpstreamHost: r.UpstreamHost,
		Forwards: r.forwards(), Segments: r.segments, Allow: r.allow, Timeout: r.Timeout, MaxBody: r.MaxBody,
		Rate: r.Rate, ClientRate: r.ClientRate, AddPrefix: r.AddPrefix, HostHeader: r.HostHeader,
		EditRequest: r.EditRequest.orNil(), EditResponse: r.EditResponse.orNil(), CORS: r.CORS, Cors: r.cors,
	}
	if known[said] == nil {
		known[said] = &said
	}
	return known[said]
}
