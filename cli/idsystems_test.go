package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// idSystem returns the variables of one of the files in deploy/id-systems.
func idSystem(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			env = append(env, line)
		}
	}
	return env
}

// Each file that configures an id system passes the check, without a note, and says by which clock
// it goes.
func TestIDSystemsPassTheCheck(t *testing.T) {
	files, err := filepath.Glob("../deploy/id-systems/*.env")
	if err != nil || len(files) != 5 {
		t.Fatalf("deploy/id-systems has the files %v, %v, want five", files, err)
	}
	for _, file := range files {
		env := append(idSystem(t, file), "SNOWGATE_REDIS_URL=redis://127.0.0.1:6379")
		if code, stdout, stderr := call(t, "", env, "config", "-check"); code != exitOK || !strings.HasPrefix(stdout, "ok: ") || stderr != "" {
			t.Errorf("%s: exit code %d, %s%s", file, code, stdout, stderr)
		}
		if !strings.Contains(strings.Join(env, "\n"), "SNOWGATE_ID_CLOCK=host") {
			t.Errorf("%s does not set SNOWGATE_ID_CLOCK", file)
		}
	}
}
