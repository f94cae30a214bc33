package proxy

import (
	"time"

	"github.com/rs/cors"

	"snowgate/limit"
	"snowgate/tokens"
)

// terms are what a request must know of its route, but for who the route is and where it
// leads: the fields of the same names of [Route]. Most routes of a table say the same here, and
// have one in common ([termsOf]): of ten thousand routes, none of which is asked often, a request
// would find its own in no cache of the processor.
type terms struct {
	Requirement       tokens.Requirement
	Public            bool
	WebSocket         bool
	PassToken         bool
	AllowEncodedSlash bool
	StripPrefix       bool
	UpstreamHost      bool
	forwards          bool // now, or once there is a replica
	segments          int  // in the path of the route
	allow             methods
	Timeout           time.Duration
	MaxBody           int64
	Rate, ClientRate  limit.Rate
	AddPrefix         string
	HostHeader        string
	EditRequest       *Edits // nil: none
	EditAnswer        *Edits // nil: none
	CORS              *CORS
	cors              *cors.Cors
}

// termsOf finds the terms of routes, so that those that are equal are the same.
type termsOf map[terms]*terms

// of returns the terms of r.
func (known termsOf) of(r *Route) *terms {
	said := terms{
		Requirement: r.Requirement, Public: r.Public, WebSocket: r.WebSocket, PassToken: r.PassToken,
		AllowEncodedSlash: r.AllowEncodedSlash, StripPrefix: r.StripPrefix, UpstreamHost: r.UpstreamHost,
		forwards: r.forwards(), segments: r.segments, allow: r.allow, Timeout: r.Timeout, MaxBody: r.MaxBody,
		Rate: r.Rate, ClientRate: r.ClientRate, AddPrefix: r.AddPrefix, HostHeader: r.HostHeader,
		EditRequest: r.EditRequest.orNil(), EditAnswer: r.EditAnswer.orNil(), CORS: r.CORS, cors: r.cors,
	}
	if known[said] == nil {
		known[said] = &said
	}
	return known[said]
}
