//go:build race

package telemetry_test

// raceEnabled says that the race detector is built in.
const raceEnabled = true
