//go:build race

package gateway

// raceEnabled says that the race detector is on, which allocates.
const raceEnabled = true
