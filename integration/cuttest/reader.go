package cuttest

import (
	"errors"
	"net"
	"runtime"
	"time"
)

// readerPatience is how long a piece waits for its reader. The reader may have no use for it.
const readerPatience = 10 * time.Millisecond

// errUnknown says that the system does not tell whether a peer has read something.
var errUnknown = errors.New("cuttest: no way to look at the peer's socket")

// awaitReader waits until the peer of conn has read what was sent, and reports whether it has.
// Where the system does not tell, it waits for long enough that the peer has probably read.
func awaitReader(conn net.Conn) bool {
	for begin, turn := time.Now(), 0; time.Since(begin) < readerPatience; turn++ {
		unread, err := unreadOf(conn)
		switch {
		case err != nil:
			<-time.After(100 * time.Microsecond)
			return true
		case unread == 0:
			return true
		case turn < 20:
			runtime.Gosched()
		default:
			<-time.After(20 * time.Microsecond)
		}
	}
	return false
}

// deliveryPatience is how long a reset waits until everything before it has arrived.
const deliveryPatience = 5 * time.Second

// awaitDelivery waits until the peer of conn has received what was sent. A reset, unlike an end, takes
// away what is still to be sent.
func awaitDelivery(conn *net.TCPConn) {
	for begin := time.Now(); time.Since(begin) < deliveryPatience; {
		if unsent, err := unsentOf(conn); err != nil || unsent == 0 {
			return
		}
		<-time.After(50 * time.Microsecond)
	}
}
