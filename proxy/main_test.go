package proxy_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"snowgate/integration/cuttest"
	"snowgate/proxy"
)

// bothTransports are the tests that look at what passes between gateway and service.
const bothTransports = "Answer|Nonsense|Broken|Slow|Timeout|Gone|Retry|Retried|Kept|Interim|Trailer|WebSocket|Upgrade|Switch|Duplex|" +
	"Early|Expect|Forged|Identity|Bytes|Forwarded|Stream|Cut|Body|Bodies|Replica|AtOnce|Header|Pipelined"

// TestMain runs those tests a second time with the transport that is used for TLS and
// HTTP/2: the rules are the same, whatever the way to the service. All of them cut what
// clients and services send as the environment asks for, see [cuttest].
func TestMain(m *testing.M) {
	flag.Parse()
	proxy.KeepTurns() // so that tests can say who is asked first
	if cuttest.Current() != cuttest.Whole {
		proxy.CutReads()
	}
	code := m.Run()
	if only := flag.Lookup("test.run"); code == 0 && only.Value.String() == "" && flag.Lookup("test.bench").Value.String() == "" {
		proxy.UseStandard()
		_ = flag.Set("test.run", bothTransports)
		if code = m.Run(); code != 0 {
			fmt.Println("with the transport of net/http")
		}
	}
	os.Exit(code)
}
