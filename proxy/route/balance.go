package route

// Balance is how a route chooses among its replicas.
type Balance string

// The ways to choose.
const (
	RoundRobin    Balance = "round_robin"     // in turn; the default
	LeastInFlight Balance = "least_in_flight" // who has the fewest requests to answer
)
