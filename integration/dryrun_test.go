package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestRevokeSaysWhatItCovers: the command counts the live tokens of one worker among those of
// three, before and after it revokes, and a dry run changes nothing.
func TestRevokeSaysWhatItCovers(t *testing.T) {
	t.Parallel()
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	var gateways []*administered
	issued := make([][]string, 3)
	for i := range issued {
		g := startAdministered(t, redis, i+1, admin, upstream)
		gateways = append(gateways, g)
		for range 4 + i {
			issued[i] = append(issued[i], g.Token(fileClient))
		}
	}
	first := gateways[0]
	from, until := "2026-01-01T00:00:00Z", afterNow(t)
	revoke := func(arguments ...string) string { return first.revoke(admin, arguments...) }
	onSecond := []string{"-worker", "2", "-from", from, "-until", until}

	// The administrator's token is one more.
	if got, want := revoke(append(onSecond, "-dry-run")...), "It would cover 6 live tokens. Nothing was written.\n"; !strings.HasSuffix(got, want) {
		t.Errorf("dry run: %q, want %q", got, want)
	}
	if got := first.ask("GET", "/revocations", ""); strings.Contains(got.Body, `"kind":"worker"`) {
		t.Errorf("a dry run writes: %s", got.Body)
	}
	if lines := first.Lines("audit"); len(lines) != 0 {
		t.Errorf("a dry run leaves audit lines: %v", lines)
	}
	first.wantGood(issued, true, true, true)
	if got := revoke(onSecond...); !strings.HasSuffix(got, "\nIt covers 6 live tokens.\n") {
		t.Errorf("revoke: %q", got)
	}
	first.wantGood(issued, true, false, true)

	// Its own worker, by whose tokens the command acts; and everybody.
	if got := revoke("-worker", "1", "-from", from, "-until", until); !regexp.MustCompile(`It covers [5-9] live tokens\.\n$`).MatchString(got) {
		t.Errorf("revoke the own worker: %q", got)
	}
	first.wantGood(issued, false, false, true)
	if got := revoke("-before", until, "-dry-run"); !regexp.MustCompile(`It would cover (1[89]|2\d) live tokens`).MatchString(got) {
		t.Errorf("dry run of everything: %q", got)
	}
	third := strings.Split(issued[2][0], "_")[1]
	if got := revoke("-token", third, "-dry-run"); !strings.Contains(got, "It would cover 1 live token.") {
		t.Errorf("dry run of a token: %q", got)
	}
	first.wantGood(issued, false, false, true)
	if got := revoke("-worker", "1", "-datacenter", "0", "-from", from, "-until", until, "-dry-run"); !strings.Contains(got, "has no datacenter") {
		t.Errorf("a datacenter that cannot be: %q", got)
	}
}

// afterNow is an instant that has come, and all that was issued so far is before it.
func afterNow(t *testing.T) string {
	t.Helper()
	instant := time.Now().Add(100 * time.Millisecond)
	gatewaytest.Eventually(t, patience, "an instant", func() bool { return time.Now().After(instant.Add(100 * time.Millisecond)) })
	return instant.UTC().Format(time.RFC3339Nano)
}

// wantGood wants the tokens of each worker to be good, or not.
func (a *administered) wantGood(issued [][]string, good ...bool) {
	a.t.Helper()
	for i, list := range issued {
		for _, token := range list {
			if a.canCall(token) != good[i] {
				a.t.Errorf("a token of worker %d is good: %t", i+1, !good[i])
			}
		}
	}
}

// revoke runs the command against a and returns what it prints.
func (a *administered) revoke(admin gatewaytest.Credentials, arguments ...string) string {
	a.t.Helper()
	command := exec.CommandContext(a.t.Context(), gatewaytest.Binary(a.t), append([]string{"revoke", "-url", a.URL, "-admin-url", a.AdminURL}, arguments...)...)
	command.Env = append(os.Environ(), "SNOWGATE_ADMIN_CLIENT_SECRET="+admin.Secret, "GORACE=atexit_sleep_ms=0")
	printed, err := command.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s: %v", printed, err)
	}
	return string(printed)
}
