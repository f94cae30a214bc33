package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// connections is how many of them ask at once, each for one thing at a time.
const connections = 32

// saturate asks the target for as much as it gives, with wrk, or with h2load for
// HTTP/2, and returns how many requests were answered. Any response but a success
// is an error.
func (t *target) saturate(ctx context.Context, http2 bool, length time.Duration) (requests int64, err error) {
	seconds := strconv.Itoa(max(1, int(length/time.Second)))
	if http2 {
		// The same number of requests under way, on few connections as HTTP/2 has it.
		// h2load has one set of fields for all requests.
		return runTool(ctx, "h2load", parseH2load, "-t", "1", "-c", "4", "-m", strconv.Itoa(connections/4), "-D", seconds,
			"-H", "Authorization: Bearer "+t.tokens[0], t.url)
	}
	requests, err = runTool(ctx, "wrk", parseWrk, t.wrk(seconds)...)
	if errors.Is(err, errRefused) {
		// wrk names no status, and counting would cost it: it is asked once more.
		_, counted := runTool(ctx, "wrk", parseStatuses, append(t.wrk("1"), "count")...)
		err = fmt.Errorf("%w; %w", err, counted)
	}
	return requests, err
}

// wrk returns the arguments by which wrk asks with all tokens in turn.
func (t *target) wrk(seconds string) []string {
	return []string{"-t", "1", "-c", strconv.Itoa(connections), "-d", seconds + "s", "-s", t.script, t.url, "--", t.file}
}

// runTool runs a load generator on its processor.
func runTool(ctx context.Context, name string, parse func(string) (int64, error), args ...string) (requests int64, err error) {
	path, err := find(name)
	if err != nil {
		return 0, err
	}
	var output strings.Builder
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := startOn(loadCore, cmd); err != nil {
		return 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", name, err, output.String())
	}
	requests, err = parse(output.String())
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output.String())
	}
	return requests, nil
}

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkFaults   = regexp.MustCompile(`Non-2xx or 3xx responses: \d+|Socket errors: .*`)
	wrkStatuses = regexp.MustCompile(`status \d+: \d+`)

	h2Requests = regexp.MustCompile(`requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed`)
	h2Statuses = regexp.MustCompile(`status codes: .*`)
)

// errRefused says that there were responses that are no successes.
var errRefused = errors.New("not all requests went well")

func parseWrk(output string) (int64, error) {
	if fault := wrkFaults.FindString(output); fault != "" {
		return 0, fmt.Errorf("%w: %s", errRefused, fault)
	}
	return number(wrkRequests.FindStringSubmatch(output), 1)
}

// parseStatuses returns what bearers.lua counted, as an error.
func parseStatuses(output string) (int64, error) {
	found := wrkStatuses.FindAllString(output, -1)
	return 0, fmt.Errorf("asked for another second, answers by status: %s", strings.Join(found, ", "))
}

func parseH2load(output string) (int64, error) {
	match := h2Requests.FindStringSubmatch(output)
	succeeded, err := number(match, 3)
	if len(match) > 3 && match[2] != match[3] {
		err = fmt.Errorf("of %s requests %s went well; %s", match[2], match[3], h2Statuses.FindString(output))
	}
	return succeeded, err
}

// number returns one group of a match.
func number(match []string, group int) (int64, error) {
	if len(match) <= group {
		return 0, errors.New("its output has no number of requests")
	}
	n, err := strconv.ParseInt(match[group], 10, 64)
	if err == nil && n == 0 {
		err = errors.New("nothing was answered")
	}
	return n, err
}
