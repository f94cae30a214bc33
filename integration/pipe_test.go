package integration_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// TestReaderOfTheLogGoes: a gateway goes on when nobody reads its output any more, as in
// "snowgate serve 2>&1 | head -n1".
func TestReaderOfTheLogGoes(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gatewaytest.Binary(t), "serve")
	cmd.Env = []string{"SNOWGATE_LISTEN=127.0.0.1:0", "SNOWGATE_ADMIN_LISTEN=127.0.0.1:0", "SNOWGATE_WORKER_ID=1", "SNOWGATE_DRAIN=0s", "GORACE=atexit_sleep_ms=0"}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	_ = write.Close()
	var start struct {
		Message string
		Listen  string
		Admin   string `json:"admin_listen"`
	}
	lines := bufio.NewScanner(read)
	for start.Listen == "" && lines.Scan() {
		_ = json.Unmarshal(lines.Bytes(), &start)
	}
	if start.Listen == "" {
		t.Fatalf("the gateway names no address: %v", lines.Err())
	}
	_ = read.Close()

	lost := func() float64 {
		response, err := http.Get("http://" + start.Admin + "/metrics")
		if err != nil {
			t.Fatalf("the gateway is gone with the reader of its log: %v", err)
		}
		defer response.Body.Close()
		metrics := bufio.NewScanner(response.Body)
		for metrics.Scan() {
			var n float64
			if name, value, ok := cutLast(metrics.Text(), ' '); ok && name == "snowgate_log_lines_lost_total" {
				if json.Unmarshal([]byte(value), &n) == nil {
					return n
				}
			}
		}
		return 0
	}
	gatewaytest.Eventually(t, patience, "lines that nobody reads are counted", func() bool {
		response, err := http.Get("http://" + start.Listen + "/nothing")
		if err != nil {
			t.Fatalf("the gateway is gone with the reader of its log: %v", err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return lost() > 0
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("the gateway ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the gateway does not end")
	}
}

// cutLast cuts text around the last separator.
func cutLast(text string, separator byte) (before, after string, found bool) {
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == separator {
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}
