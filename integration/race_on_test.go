//go:build race

package integration_test

// raceDetector tells that the tests, and the gateways that they start, are built
// with the race detector: slower, and with several times the memory.
const raceDetector = true
