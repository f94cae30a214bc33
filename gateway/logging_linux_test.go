package gateway

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"snowgate/config"
)

// terminal returns both ends of a new terminal: what is written to the second is read from the first.
func terminal(t *testing.T) (shown, written *os.File) {
	t.Helper()
	shown, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = shown.Close() })
	var number, locked uint32
	for request, argument := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &locked} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, shown.Fd(), request, uintptr(unsafe.Pointer(argument))); errno != 0 {
			t.Skipf("there are no terminals here: %v", errno)
		}
	}
	written, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = written.Close() })
	return shown, written
}

// TestLogFormat: lines for people on a terminal, JSON elsewhere, and colours on a terminal alone.
func TestLogFormat(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	shown, written := terminal(t)
	log := func(out *os.File, format string) {
		logs := OpenLogs(out, config.Config{LogFormat: format, LogLevel: "info"})
		logs.main.Info().Dur("took", 1500*time.Millisecond).Msg("hello")
		logs.Close()
	}
	buffer := make([]byte, 4096)
	for format, isJSON := range map[string]bool{"auto": false, "console": false, "json": true} {
		log(written, format)
		n, err := shown.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		checkLine(t, "on a terminal, "+format, buffer[:n], isJSON, !isJSON)
	}
	for format, isJSON := range map[string]bool{"auto": true, "console": false, "json": true} {
		file, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		log(file, format)
		text, err := os.ReadFile(file.Name())
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		checkLine(t, "in a file, "+format, text, isJSON, false)
	}
}

func checkLine(t *testing.T, what string, line []byte, isJSON, coloured bool) {
	t.Helper()
	if got := bytes.HasPrefix(line, []byte(`{"level":"info"`)); got != isJSON {
		t.Errorf("%s: JSON is %v: %q", what, got, line)
	}
	if got := bytes.Contains(line, []byte("\x1b[")); got != coloured {
		t.Errorf("%s: colours are %v: %q", what, got, line)
	}
	if !strings.Contains(string(line), "hello") || !strings.Contains(string(line), "1.5s") {
		t.Errorf("%s: %q, want hello, and 1.5s with its unit", what, line)
	}
}
