// Package engine_test tries the gateway with a real Docker engine and Compose:
// services are scaled, stopped, killed and made ill under load.
//
// The tests run with SNOWGATE_TEST_ENGINE=1 only (`make engine-test`): they take
// a minute and need the images that `make compose-smoke` builds.
// SNOWGATE_TEST_IMAGE names another image of the gateway to try.
package engine_test

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"testing"

	"snowgate/integration/gatewaytest"
)

// The project is one for all tests: it takes as long to start as some of them take.
var (
	startOnce sync.Once
	started   *project // nil: none is, or not yet
	startErr  error
)

func TestMain(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		<-interrupted
		os.Exit(stop(1))
	}()
	os.Exit(stop(m.Run()))
}

// stop removes the project, if it was started, and returns the exit code.
func stop(code int) int {
	if started == nil {
		return code
	}
	if code != 0 {
		started.dump(os.Stdout)
	}
	if leak := gatewaytest.Leak(started.log.String()); leak != "" {
		fmt.Printf("the gateway's log holds a token or secret: %.12s…\n", leak)
		code = 1
	}
	if err := started.down(); err != nil {
		fmt.Println(err)
		code = 1
	}
	_ = os.RemoveAll(started.dir)
	return code
}

// engine returns the running project, which the first test that asks starts.
func engine(t *testing.T) *project {
	t.Helper()
	if os.Getenv("SNOWGATE_TEST_ENGINE") == "" {
		t.Skip("SNOWGATE_TEST_ENGINE is not set; `make engine-test` runs this")
	}
	startOnce.Do(func() { startErr = start() })
	if startErr != nil {
		t.Fatal(startErr)
	}
	return started
}

func start() error {
	image := cmp.Or(os.Getenv("SNOWGATE_TEST_IMAGE"), defaultImage)
	built, err := run(nil, "docker", "image", "inspect", "-f", "{{.RepoTags}} of {{.Created}}", image, "snowgate-setup:local")
	if err != nil {
		return fmt.Errorf("the images, which `make compose-smoke` builds: %w", err)
	}
	fmt.Print(built) // they may be older than the source
	dir, err := os.MkdirTemp("", "snowgate-engine-")
	if err != nil {
		return err
	}
	p, err := newProject(dir, image)
	if err != nil {
		return err
	}
	started = p
	return p.up()
}
