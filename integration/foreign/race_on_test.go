//go:build race

package foreign_test

// raceDetector tells whether the tests, and the gateways that they start, are built with
// the race detector.
const raceDetector = true
