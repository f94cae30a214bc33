package integration_test

import (
	"bufio"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// TestDemo starts "snowgate demo" and pastes what it prints into a shell, as a newcomer does.
func TestDemo(t *testing.T) {
	t.Parallel()
	shell := gatewaytest.Require(t, "sh", "dash")
	gatewaytest.Require(t, "curl", "curl")
	cmd := exec.Command(gatewaytest.Binary(t), "demo", "-listen", "127.0.0.1:0")
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()

	var script strings.Builder
	pasting := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		line := lines.Text()
		pasting = pasting || strings.HasPrefix(line, "# get a token")
		if pasting {
			script.WriteString(line + "\n")
		}
		if strings.Contains(script.String(), "oauth2/revoke\n") && strings.HasSuffix(line, "/orders/42") {
			break // the last line
		}
	}
	output, err := exec.CommandContext(t.Context(), shell, "-c", script.String()).Output()
	if err != nil {
		t.Fatalf("the lines of the demo: %v\n%s", err, script.String())
	}
	var statuses []string
	for _, found := range regexp.MustCompile(`(?m)^HTTP/1.1 (\d+)`).FindAllStringSubmatch(string(output), -1) {
		statuses = append(statuses, found[1])
	}
	if want := []string{"200", "401", "200", "200", "401"}; !slices.Equal(statuses, want) {
		t.Errorf("the lines of the demo get %v, want %v (called, without a token, public, revoked, called again):\n%s", statuses, want, output)
	}
	if !strings.HasPrefix(string(output), "sgt_") || !strings.Contains(string(output), `"active":true`) {
		t.Errorf("the demo gives no token, or an inactive one:\n%s", output)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("the demo ends with %v", err)
		}
	case <-time.After(40 * time.Second):
		t.Error("the demo does not end")
	}
}
