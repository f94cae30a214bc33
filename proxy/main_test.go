package proxy_test

import (
	"flag"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/proxy"
)

// bothTransports are the tests that look at what passes between gateway and service.
const bothTransports = "Answer|Nonsense|Broken|Slow|Timeout|Gone|Retry|Retried|Kept|Interim|Trailer|WebSocket|Upgrade|Switch|Duplex|" +
	"Early|Expect|Forged|Identity|Bytes|Forwarded|Stream|Cut|Body|Bodies|Replica|AtOnce|Header|Pipelined"

// useStandard has every gateway ask services by way of net/http.
var useStandard bool

// newRouter returns a router whose replicas are asked in the order of the route, so that tests can say
// who is asked first. What comes from services is cut as the environment asks for.
func newRouter() *proxy.Router {
	r := new(proxy.Router)
	proxy.KeepTurns(r)
	proxy.SetDial(r, cuttest.Dialer((&net.Dialer{KeepAlive: 15 * time.Second}).DialContext))
	if useStandard {
		proxy.UseStandard(r)
	}
	return r
}

// TestMain runs those tests a second time with the transport that is used for TLS and
// HTTP/2: the rules are the same, whatever the way to the service. All of them cut what
// clients and services send as the environment asks for, see [cuttest].
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if only := flag.Lookup("test.run"); code == 0 && only.Value.String() == "" && flag.Lookup("test.bench").Value.String() == "" {
		useStandard = true
		_ = flag.Set("test.run", bothTransports)
		if code = m.Run(); code != 0 {
			fmt.Println("with the transport of net/http")
		}
	}
	os.Exit(code)
}
