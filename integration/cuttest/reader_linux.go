package cuttest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"unsafe"
)

// diagnosis asks the kernel about sockets (sock_diag(7)), which also knows those of other processes.
var diagnosis struct {
	mu  sync.Mutex
	fd  int // 0: not open
	err error
}

const (
	sockDiagByFamily = 20
	requestSize      = syscall.SizeofNlMsghdr + 56 // inet_diag_req_v2
	unreadOffset     = syscall.SizeofNlMsghdr + 56 // idiag_rqueue in inet_diag_msg
)

// unreadOf returns how many bytes the peer of conn, on this machine, has received and not read.
func unreadOf(conn net.Conn) (int, error) {
	near, ok := conn.LocalAddr().(*net.TCPAddr)
	far, _ := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || far == nil || near.IP.To4() == nil {
		return 0, errUnknown
	}
	d := &diagnosis
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd == 0 && d.err == nil {
		d.fd, d.err = syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, syscall.NETLINK_INET_DIAG)
	}
	if d.err != nil {
		return 0, d.err
	}
	request := diagRequest(far.AddrPort(), near.AddrPort())
	if err := syscall.Sendto(d.fd, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, err
	}
	var reply [512]byte
	n, _, err := syscall.Recvfrom(d.fd, reply[:], 0)
	if err != nil || n < unreadOffset+4 || binary.NativeEndian.Uint16(reply[4:]) != sockDiagByFamily {
		return 0, errUnknown // the socket is gone, for one
	}
	return int(binary.NativeEndian.Uint32(reply[unreadOffset:])), nil
}

// diagRequest asks about the TCP socket that is bound to local and connected to remote.
func diagRequest(local, remote netip.AddrPort) []byte {
	r := make([]byte, requestSize)
	binary.NativeEndian.PutUint32(r[0:], requestSize)
	binary.NativeEndian.PutUint16(r[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(r[6:], syscall.NLM_F_REQUEST)
	body := r[syscall.SizeofNlMsghdr:]
	body[0], body[1] = syscall.AF_INET, syscall.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[4:], 1<<32-1) // whatever its state
	binary.BigEndian.PutUint16(body[8:], local.Port())
	binary.BigEndian.PutUint16(body[10:], remote.Port())
	from, to := local.Addr().Unmap().As4(), remote.Addr().Unmap().As4()
	copy(body[12:], from[:])
	copy(body[28:], to[:])
	copy(body[48:], "\xff\xff\xff\xff\xff\xff\xff\xff") // no cookie
	return r
}

// unsentOf returns how many bytes were written to conn that its peer has not received.
func unsentOf(conn *net.TCPConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var unsent int32
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&unsent)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return int(unsent), err
}
