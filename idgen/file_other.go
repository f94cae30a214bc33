//go:build !unix

package idgen

import (
	"errors"
	"os"
)

// lockFile fails: without a lock two processes could share a ceiling.
func lockFile(string) (*os.File, error) {
	return nil, errors.New("idgen: a ceiling file needs a system with flock")
}
