//go:build race

package lineartest

const underRace = true
