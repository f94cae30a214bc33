package route

import (
	"time"

	"github.com/rs/cors"

	"snowgate/limit"
	"snowgate/tokens"
)

// Policy holds the settings of a route, without its name and its upstreams. The fields mean what those
// of [Route] mean. Routes with equal settings share one Policy, so that the settings of many rarely
// used routes stay in the processor's caches.
type Policy struct {
	Requirement       tokens.Requirement
	Resource          Resource
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

// Policies lets routes with equal settings share one [Policy].
type Policies map[Policy]*Policy

// Of returns the policy of r.
func (known Policies) Of(r *Route) *Policy {
	said := Policy{
		Requirement: r.Requirement, Resource: r.Resource, Public: r.Public, WebSocket: r.WebSocket, PassToken: r.PassToken,
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
