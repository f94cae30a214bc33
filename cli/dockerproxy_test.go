package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"snowgate/proxy/docker/dockertest"
	"snowgate/proxy/docker/readonly"
)

// A docker-proxy that cannot reach Docker says why once, and when it can again.
func TestDockerProxyTellsWhyDockerIsAway(t *testing.T) {
	docker := dockertest.Start(t, "unix")
	var out bytes.Buffer
	report := &dockerReport{out: &out, socket: docker.Socket}
	proxy := readonly.New(docker.Socket)
	proxy.Asked = report.asked
	said := func() string {
		defer out.Reset()
		return out.String()
	}
	if proxy.Ping(t.Context()); said() != "" {
		t.Error("it says something while all is well")
	}
	docker.Stop()
	proxy.Ping(t.Context())
	proxy.Ping(t.Context())
	if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, docker.Socket) {
		t.Errorf("without Docker: %q, want one line with the socket", got)
	}
	docker.Restart()
	if proxy.Ping(t.Context()); said() != "snowgate docker-proxy: Docker can be reached again\n" {
		t.Error("it does not say that Docker is back")
	}
	for err, want := range map[error]string{fs.ErrPermission: "stat -c %g " + docker.Socket, fs.ErrNotExist: "-socket", errors.New("odd"): "odd"} {
		if report.asked(fmt.Errorf("dial: %w", err)); !strings.Contains(out.String(), want) {
			t.Errorf("%v: %q, want %q in it", err, out.String(), want)
		}
		out.Reset()
	}
}
