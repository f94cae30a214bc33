//go:build !linux

package cuttest

import "net"

func unreadOf(net.Conn) (int, error) { return 0, errUnknown }
