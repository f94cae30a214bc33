package gatewaytest

import (
	"os"
	"os/exec"
	"testing"
)

// Require returns the path of a program that Debian has in pkg. A test without it ends as by
// [Missing].
func Require(t testing.TB, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		Missing(t, program+" is not in PATH (Debian: apt-get install "+pkg+")")
	}
	return path
}

// Missing skips the test, or fails it if SNOWGATE_TEST_REQUIRE=1.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("SNOWGATE_TEST_REQUIRE") == "1" {
		t.Fatalf("%s, and SNOWGATE_TEST_REQUIRE=1", what)
	}
	t.Skip("SKIPPED, NOT TESTED: " + what)
}
