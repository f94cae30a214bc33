//go:build !race

package lineartest

const underRace = false
