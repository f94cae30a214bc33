//go:build !linux

package idgen

import "os"

func dataSync(f *os.File) error { return f.Sync() }
