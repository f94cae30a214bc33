//go:build !linux

package cuttest

import "net"

func unreadOf(net.Conn) (int, error) { return 0, errUnknown }

// unsentOf returns an error.
func unsentOf(*net.TCPConn) (int, error) { return 0, errUnknown }
