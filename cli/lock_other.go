//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package cli

import "context"

// lockFile does nothing here: processes that need a token at the same time get one each.
func lockFile(context.Context, string) (unlock func()) { return func() {} }
