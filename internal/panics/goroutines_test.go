package panics_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// uncaught lists the goroutines and callbacks that need no [panics.Catch]: they handle no data of a
// client, a service, Redis or Docker.
var uncaught = []struct{ at, why string }{
	{"main.go untilSignal", "waits for signals of the operator"},
	{"cli/echosignal_unix.go onHealthSignal", "waits for signals of the operator"},
	{"source/source.go start", "recovers by itself: the package imports nothing of ours"},
	{"proxy/upstream/upstream.go whileThere", "cancels a context"},
	{"guard/guard.go start", "recovers by itself: the package imports nothing of ours"},
	{"proxy/docker/moby.go events", "cancels a context"},
}

// forTests lists packages that only tests import.
var forTests = []string{"integration/gatewaytest", "integration/cuttest", "proxy/docker/dockertest", "tokens/tokenstest", "tokens/tokenstest/redistest"}

// TestEveryGoroutineCatchesItsPanics parses the whole module. A panic that nothing recovers ends
// the process, and every exchange with it.
func TestEveryGoroutineCatchesItsPanics(t *testing.T) {
	t.Chdir("../..")
	var found []string
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(forTests, filepath.ToSlash(name)) {
				return filepath.SkipDir
			}
			return skipForeign(name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		faults, err := uncaughtIn(name, nil)
		for _, fault := range faults {
			found = append(found, filepath.ToSlash(name)+" "+fault.function)
			if !slices.ContainsFunc(uncaught, func(u struct{ at, why string }) bool { return u.at == found[len(found)-1] }) {
				t.Errorf("%s:%d starts a goroutine or a callback in which nobody recovers from a panic: "+
					"begin a function literal with defer panics.Catch or panics.Into, or run it in panics.Keep", name, fault.line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range uncaught {
		if !slices.Contains(found, u.at) {
			t.Errorf("%s is in the table of uncaught goroutines and starts none", u.at)
		}
	}
}

// TestUncaughtGoroutinesAreFound shows which code the test above reports.
func TestUncaughtGoroutinesAreFound(t *testing.T) {
	for start, want := range map[string]int{
		`go work()`:              1,
		`go func() { work() }()`: 1,
		`go func() { work(); defer panics.Catch(panics.Log, nil) }()`:      1,
		`go func() { defer other.Catch(panics.Log, nil); work() }()`:       1,
		`go func() { defer func() { panics.Catch(panics.Log, nil) }() }()`: 1,
		`group.Go(work)`: 1,
		`a.b.group.Go(func() error { return nil })`:                                        1,
		`time.AfterFunc(1, work)`:                                                          1,
		`context.AfterFunc(ctx, func() { work() })`:                                        1,
		`go func() { defer panics.Catch(panics.Log, nil); work() }()`:                      0,
		`group.Go(func() (err error) { defer panics.Into(panics.Log, &err); return nil })`: 0,
		`group.Go(func() { panics.Keep(ctx, panics.Log, work) })`:                          0,
		`group.Go(func() error { panics.Keep(ctx, panics.Log, work); return nil })`:        0,
		`go func() { defer close(done); panics.Keep(ctx, panics.Log, work) }()`:            0,
		`go func() { defer close(done); defer panics.Catch(panics.Log, nil); work() }()`:   0,
		`go func() { panics.Keep(ctx, panics.Log, work); work() }()`:                       1,
		`time.AfterFunc(1, func() { defer panics.Catch(panics.Log, nil); work() })`:        0,
	} {
		faults, err := uncaughtIn("x.go", "package x\nfunc f() {\n"+start+"\n}\n")
		if err != nil || len(faults) != want {
			t.Errorf("%s: %d faults, error %v; want %d", start, len(faults), err, want)
		}
	}
}

// uncaughtStart is a place that starts a goroutine or callback whose panics nothing recovers.
type uncaughtStart struct {
	function string
	line     int
}

// uncaughtIn parses a file, or source if source is not nil.
func uncaughtIn(name string, source any) ([]uncaughtStart, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var found []uncaughtStart
	for _, declaration := range file.Decls {
		function := ""
		if f, ok := declaration.(*ast.FuncDecl); ok {
			function = f.Name.Name
		}
		ast.Inspect(declaration, func(n ast.Node) bool {
			if work, starts := startedBy(n); starts && !catches(work) {
				found = append(found, uncaughtStart{function, files.Position(n.Pos()).Line})
			}
			return true
		})
	}
	return found, nil
}

// startedBy returns the function that n starts on another goroutine, if any.
func startedBy(n ast.Node) (work ast.Expr, starts bool) {
	switch n := n.(type) {
	case *ast.GoStmt:
		return n.Call.Fun, true
	case *ast.CallExpr:
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 0 && slices.Contains([]string{"Go", "TryGo", "AfterFunc"}, s.Sel.Name) {
			return n.Args[len(n.Args)-1], true
		}
	}
	return nil, false
}

// catches reports whether work is a function literal that begins with a deferred Catch or Into, or
// only runs a loop in Keep. Before that, it may only defer the close of a channel, which signals
// its end.
func catches(work ast.Expr) bool {
	literal, ok := work.(*ast.FuncLit)
	if !ok {
		return false
	}
	for i, statement := range literal.Body.List {
		switch s := statement.(type) {
		case *ast.DeferStmt:
			if ofPanics(s.Call, "Catch", "Into") {
				return true
			}
			if name, ok := s.Call.Fun.(*ast.Ident); !ok || name.Name != "close" {
				return false
			}
		case *ast.ExprStmt:
			call, ok := s.X.(*ast.CallExpr)
			if !ok || !ofPanics(call, "Keep") {
				return false
			}
			rest := literal.Body.List[i+1:]
			return len(rest) == 0 || len(rest) == 1 && isReturn(rest[0])
		default:
			return false
		}
	}
	return false
}

func isReturn(s ast.Stmt) bool {
	_, ok := s.(*ast.ReturnStmt)
	return ok
}

func ofPanics(call *ast.CallExpr, functions ...string) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "panics" && slices.Contains(functions, s.Sel.Name)
}

func skipForeign(dir string) error {
	if dir == "." {
		return nil
	}
	if modules, _ := filepath.Glob(filepath.Join(dir, "go.mod")); len(modules) > 0 {
		return filepath.SkipDir
	}
	if base := filepath.Base(dir); strings.HasPrefix(base, ".") || base == "testdata" {
		return filepath.SkipDir
	}
	return nil
}
