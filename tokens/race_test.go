//go:build race

package tokens_test

// raceEnabled says that the race detector is on, which allocates.
const raceEnabled = true
