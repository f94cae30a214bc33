package idgen

import (
	"os"
	"syscall"
)

// dataSync flushes the file's content, and only the metadata needed to read it, to the disk.
func dataSync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
