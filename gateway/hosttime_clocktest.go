//go:build clocktest

package gateway

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// hostTime reads the machine's clock and adds what a test has written to the file that
// SNOWGATE_TEST_CLOCK names, in milliseconds: so the test steps the clock. It is in no binary but
// those that tests build.
func hostTime() time.Time {
	text, err := os.ReadFile(os.Getenv("SNOWGATE_TEST_CLOCK"))
	if err != nil {
		panic("snowgate: a build for tests needs SNOWGATE_TEST_CLOCK: " + err.Error())
	}
	offset, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		panic("snowgate: SNOWGATE_TEST_CLOCK: " + err.Error())
	}
	return time.Now().Add(time.Duration(offset) * time.Millisecond)
}
