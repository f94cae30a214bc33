package route

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rs/cors"

	"snowgate/internal/request/canonical"
)

// CORS says which pages of other origins may use a route from a browser (Fetch Standard, "CORS
// protocol"). The gateway answers preflights itself and sets the CORS fields of every response, its
// own included. CORS fields of the service are dropped.
type CORS struct {
	// Origins are patterns of [canonical.ValidOrigin]. Required.
	Origins []string
	// Methods are those of the requests that may be made. Empty: the methods of
	// the route, or, if it has none, GET, HEAD, POST, PUT, PATCH and DELETE.
	Methods []string
	// RequestHeaders are the fields that may be sent beside those that browsers
	// always send; "*" is any, also Authorization.
	RequestHeaders []string
	// ExposedHeaders are the fields of responses that a page may read, beside those
	// by which the gateway says why it refuses a request; "*" is all.
	ExposedHeaders []string
	// Credentials lets browsers add cookies and the like. It does not go with
	// every origin, nor with all exposed headers.
	Credentials bool
	// MaxAge is how long a browser may keep the response to a preflight, in whole
	// seconds. 0: as long as it does by itself, which is 5 s.
	MaxAge time.Duration
}

// gatewayFields are response fields of the gateway that programs need. A browser shows them to a
// page only if they are exposed.
var gatewayFields = []string{"WWW-Authenticate", "Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-Id"}

var browserMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

func (c *CORS) valid(r *Route) error {
	var faults []error
	if len(c.Origins) == 0 {
		faults = append(faults, errors.New("there is no origin"))
	}
	for _, origin := range c.Origins {
		if err := canonical.ValidOrigin(origin); err != nil {
			faults = append(faults, fmt.Errorf("origin %q %w", origin, err))
		}
	}
	if c.Credentials && slices.Contains(c.Origins, canonical.AnyOrigin) {
		faults = append(faults, errors.New("credentials of every origin would let any page act for its visitors"))
	}
	if c.Credentials && slices.Contains(c.ExposedHeaders, "*") {
		faults = append(faults, errors.New(`with credentials, "*" exposes nothing`))
	}
	for _, method := range c.Methods {
		if !isMethod(method) || !r.allow.Include(method) {
			faults = append(faults, fmt.Errorf("method %q is not allowed on the route", method))
		}
	}
	if c.MaxAge < 0 || c.MaxAge%time.Second != 0 {
		faults = append(faults, fmt.Errorf("max age %v is not a number of seconds", c.MaxAge))
	}
	return errors.Join(faults...)
}

// options translates c for the CORS library. It leaves no list empty for which the library has a
// default.
func (c *CORS) options() cors.Options {
	headers := c.RequestHeaders
	if len(headers) == 0 {
		headers = []string{"Accept"} // which is always sent
	}
	exposed := slices.Concat(gatewayFields, c.ExposedHeaders)
	if slices.Contains(exposed, "*") {
		exposed = []string{"*"}
	}
	return cors.Options{
		AllowedOrigins:   slices.Clone(c.Origins),
		AllowedMethods:   slices.Clone(c.Methods),
		AllowedHeaders:   slices.Clone(headers),
		ExposedHeaders:   exposed,
		MaxAge:           int(c.MaxAge / time.Second),
		AllowCredentials: c.Credentials,
	}
}
