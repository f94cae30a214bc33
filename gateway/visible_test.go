package gateway

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strings"
	"testing"
	"unicode"

	"snowgate/config"
)

// TestLogShowsWhatItSays: no character of a caller reaches the log that turns, breaks or hides text.
func TestLogShowsWhatItSays(t *testing.T) {
	const text = "a\u0085b\u009fc\u2028d\u2029e\u202ef\u2066g\u200fh\u061ci\ufeffj\u200bk\U000e0041l äöü 漢字 é"
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		log := OpenLogs(&out, config.Config{LogFormat: format, LogLevel: "info"})
		log.main.Info().Str("user_agent", text).Msg(text)
		log.Close()
		for _, r := range out.String() {
			if r >= 0x80 && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
				t.Errorf("%s: %U stands raw in %q", format, r, out.String())
			}
		}
		if !strings.Contains(out.String(), `\u202e`) || !strings.Contains(out.String(), "äöü 漢字 é") {
			t.Errorf("%s: the line is %q", format, out.String())
		}
		var line struct {
			Agent string `json:"user_agent"`
		}
		if format == "json" && (json.Unmarshal(out.Bytes(), &line) != nil || line.Agent != text) {
			t.Errorf("the line reads as %q, want what was logged", line.Agent)
		}
	}
}

// TestLibrariesLogNothingOfServices: what net/http's transport says of bytes that a service sent
// unasked is in no line, whatever the level; and it never waits for whoever reads the log.
func TestLibrariesLogNothingOfServices(t *testing.T) {
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for level, lines := range map[string]int{"error": 0, "debug": 1} {
		var out bytes.Buffer
		logs := OpenLogs(&out, config.Config{LogFormat: "json", LogLevel: level})
		log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "your token was secret", nil)
		logs.Close()
		if strings.Contains(out.String(), "secret") || strings.Count(out.String(), "\n") != lines {
			t.Errorf("level %s: the log is %q, want %d lines without what was quoted", level, out.String(), lines)
		}
		if lines > 0 && !strings.Contains(out.String(), `"message":"Unsolicited response`) {
			t.Errorf("the line is %q", out.String())
		}
	}
	logs := OpenLogs(stuck{}, config.Config{LogFormat: "json", LogLevel: "debug"})
	_ = logs // it cannot be closed: nobody reads it
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10_000 {
			log.Print("x")
		}
	}()
	<-done
}

// stuck is a writer that nobody reads.
type stuck struct{}

// Write implements [io.Writer].
func (stuck) Write([]byte) (int, error) { select {} }
