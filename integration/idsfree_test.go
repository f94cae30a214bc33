package integration_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// advice matches the command that the error names when a registry is used up.
var advice = regexp.MustCompile(`\\"snowgate (ids free [^"\\]*)\\"`)

// adviceOf starts a gateway that cannot get a number, and returns the arguments of the command that
// its log names.
func adviceOf(t *testing.T, env []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, gatewaytest.Binary(t))
	cmd.Env = append(env, "SNOWGATE_LISTEN=127.0.0.1:0", "SNOWGATE_ADMIN_LISTEN=", "SNOWGATE_DRAIN=0s", "GORACE=atexit_sleep_ms=0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var log strings.Builder
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		log.WriteString(lines.Text() + "\n")
		if found := advice.FindStringSubmatch(lines.Text()); found != nil {
			return strings.Fields(found[1])
		}
	}
	t.Fatalf("the log names no command that frees numbers:\n%s", log.String())
	return nil
}

// TestAdviceWhenARegistryIsUsedUp does what the error says, on a layout with a single number.
func TestAdviceWhenARegistryIsUsedUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	client := gatewaytest.NewClient("worker", "a")
	env := []string{
		"PATH=" + os.Getenv("PATH"), "SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_STORE_TIMEOUT=5s",
		"SNOWGATE_WORKER_ID=registry", "SNOWGATE_ID_LAYOUT=time:41,worker:1,sequence:12",
	}
	start := func() *gatewaytest.Gateway {
		return gatewaytest.Start(t, gatewaytest.Options{Config: "clients:\n" + client.YAML, Env: env})
	}
	run := func(arguments ...string) (output string, ok bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, gatewaytest.Binary(t), arguments...)
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		return string(text), err == nil
	}
	first := start()
	before := first.Token(client)
	command := adviceOf(t, env)
	if output, ok := run(command...); ok || !strings.Contains(output, "no number is unused") {
		t.Errorf("snowgate %s beside the gateway that has the number: %s", strings.Join(command, " "), output)
	}
	if output, ok := run("ids", "free", "-worker", "1"); ok || !strings.Contains(output, "the worker number is taken") {
		t.Errorf("freeing the number of a living gateway: %s", output)
	}
	first.Signal(os.Interrupt)
	first.Wait()

	if output, ok := run(append(command, "-dry-run")...); !ok || !strings.Contains(output, "worker number 1, kept by ") {
		t.Errorf("dry run: %s", output)
	}
	adviceOf(t, env) // nothing is freed by that
	if output, ok := run(command...); !ok || !strings.HasSuffix(output, ", freed\n") {
		t.Errorf("snowgate %s: %s", strings.Join(command, " "), output)
	}
	began := time.Now()
	second := start()
	if after := second.Token(client); publicID(after) <= publicID(before) {
		t.Errorf("the freed number has issued %s, before it was freed %s", publicID(after), publicID(before))
	}
	t.Logf("the next gateway issues %v after its start", time.Since(began))
}
