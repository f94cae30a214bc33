//go:build race

package handlers_test

// raceEnabled says that the race detector is on. The race detector allocates.
const raceEnabled = true
