package gatewaytest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The previous release, by its name and its commit: a clone may lack the tag.
const (
	previousRelease = "v0.1.0"
	previousCommit  = "4a4f68ae5d404223bea1e9ef0263249ca8d1d892"
)

var buildPrevious = sync.OnceValues(compilePrevious)

// Previous returns the path of the previous release, built from the history of the repository. It
// skips the test if the history does not have it.
func Previous(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skip("not a git repository: " + previousRelease + " cannot be built")
	}
	if err := exec.Command("git", "-C", strings.TrimSpace(string(root)), "cat-file", "-e", previousCommit+"^{commit}").Run(); err != nil {
		t.Skip("the history lacks " + previousRelease + ": git fetch --unshallow")
	}
	path, err := buildPrevious()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// compilePrevious builds the previous release without the race detector.
func compilePrevious() (path string, err error) {
	if err := makeBuildDir(); err != nil {
		return "", err
	}
	source, path := filepath.Join(buildDir, "previous"), filepath.Join(buildDir, "snowgate-previous")
	script := `set -e; cd "$(git rev-parse --show-toplevel)"; mkdir "$1"; git archive "$2" | tar -x -C "$1"; cd "$1"; go build -pgo=off -o "$3" .`
	if out, err := exec.Command("sh", "-c", script, "sh", source, previousCommit, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", previousRelease, err, out)
	}
	return path, nil
}
