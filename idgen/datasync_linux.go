package idgen

import (
	"os"
	"syscall"
)

// dataSync is fsync without what is not needed to read the file back.
func dataSync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
