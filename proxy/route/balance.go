package route

// Balance is the way in which a route chooses among its replicas.
type Balance string

// The ways to choose.
const (
	RoundRobin    Balance = "round_robin"     // in turn; the default
	LeastInFlight Balance = "least_in_flight" // the replica with the fewest requests in flight
)
