package gateway

import (
	"bytes"
	"encoding/json"
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
