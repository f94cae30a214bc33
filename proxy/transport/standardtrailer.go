package transport

import "net/http"

// RoundTrip sends r. A request with a trailer gets a connection of its own: when the service has
// responded early and reset the stream, and the trailer is still under way, a service written with
// Go's net/http takes the trailer for a protocol error of the whole connection (where RFC 9113 §5.1
// has it ignore the frame), and all other requests on the connection would fail. Only TestTrailersApart
// and the torture show it; TestLateTrailersEndTheConnection fails when net/http has changed.
func (s *standard) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(r.Trailer) == 0 {
		return s.Transport.RoundTrip(r)
	}
	apart := s.Transport.Clone()
	apart.DisableKeepAlives = true // the connection ends with the stream
	return apart.RoundTrip(r)
}
