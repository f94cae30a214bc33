//go:build race

package handlers_test

// raceEnabled says that the race detector is on, which allocates.
const raceEnabled = true
