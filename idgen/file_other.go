//go:build !unix

package idgen

import (
	"errors"
	"os"
)

// lockFile always fails on this system: without a lock two processes could use the same ceiling
// file.
func lockFile(string) (*os.File, error) {
	return nil, errors.New("idgen: a ceiling file needs a system with flock")
}
