package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// watched runs Watch on a file in a bubble of fake time and notes what it
// reports.
type watched struct {
	t       *testing.T
	path    string
	trigger chan os.Signal
	edits   int

	mu      sync.Mutex
	reports []string // client ids, or "fault: …"
}

// watch calls test while Watch runs on a file that starts out as content.
func watch(t *testing.T, content string, test func(w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, path: filepath.Join(t.TempDir(), "c.yaml"), trigger: make(chan os.Signal, 1)}
		w.write(content)
		cfg := Config{ConfigFile: w.path, TokenMaxTTL: time.Hour}
		file, err := cfg.parse(readContent(cfg.ConfigFile))
		if err != nil {
			t.Fatal(err)
		}
		cfg.File = file.Spent() // as the gateway keeps it
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Watch(ctx, cfg, w.trigger, w.note)
		}()
		test(w)
		cancel()
		<-done
	})
}

func (w *watched) note(file File, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.reports = append(w.reports, "fault: "+strings.ReplaceAll(err.Error(), w.path+":", "c.yaml:"))
		return
	}
	ids := make([]string, len(file.Clients))
	for i, c := range file.Clients {
		ids[i] = c.ID
	}
	w.reports = append(w.reports, strings.Join(ids, ","))
}

// write changes the file in place. The files live in real time, the bubble in
// its own: every edit gets a time of change of its own.
func (w *watched) write(content string) {
	w.t.Helper()
	w.edits++
	stamp := time.Date(2026, 1, 1, 0, 0, w.edits, 0, time.UTC)
	if err := os.WriteFile(w.path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chtimes(w.path, stamp, stamp); err != nil {
		w.t.Fatal(err)
	}
}

// expect lets some intervals pass and compares what was reported in them.
func (w *watched) expect(intervals int, want ...string) {
	w.t.Helper()
	<-time.After(time.Duration(intervals) * PollInterval) // in the time of the bubble
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := strings.Join(w.reports, " | "); got != strings.Join(want, " | ") {
		w.t.Errorf("reported %q, want %q", got, want)
	}
	w.reports = nil
}

func TestWatchReportsEachChangeOnce(t *testing.T) {
	watch(t, "clients: [{id: a}]", func(w *watched) {
		w.expect(5) // nothing happened
		w.write("clients: [{id: b}]")
		w.expect(3, "b")
		w.expect(10)
		w.write("clients: [{id: b}]") // touched, the same content
		w.expect(3)
		w.write("clients: [{id: a}]")
		w.expect(3, "a")
	})
}

func TestWatchSeesAChangeBeforeItsFirstLook(t *testing.T) {
	watch(t, "clients: [{id: a}]", func(w *watched) {
		w.write("clients: [{id: b}]")
		w.expect(3, "b")
	})
}

func TestWatchKeepsTheOldStateOverABadFile(t *testing.T) {
	const fault = "fault: c.yaml:1:1: unknown key \"client\" in the file; did you mean clients?"
	watch(t, "clients: [{id: a}]", func(w *watched) {
		w.write("client: []")
		w.expect(3, fault)
		w.expect(10) // said once
		w.write("client: []")
		w.expect(3) // the same content again
		w.write("client: [] ")
		w.expect(3, fault) // other content, the same fault
		w.write("clients: [{id: a}]")
		w.expect(3, "a") // good again is news, although it is what was loaded first
	})
}

// A file that changes at every look is being written: it is read when it rests.
func TestWatchWaitsForTheEndOfAWrite(t *testing.T) {
	watch(t, "clients: [{id: a}]", func(w *watched) {
		for _, part := range []string{"", "clients:", "clients: [{id: b}", "clients: [{id: b}]", "clients: [{id: b}, {id: c}]"} {
			w.write(part)
			w.expect(1)
		}
		w.expect(3, "b,c")
	})
}

func TestWatchFollowsRenamesAndSymlinks(t *testing.T) {
	watch(t, "clients: [{id: a}]", func(w *watched) {
		dir := filepath.Dir(w.path)
		write := func(name, content string) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		write("new", "clients: [{id: b}]")
		w.expect(3)
		before, err := os.Stat(w.path)
		do(err)
		do(os.Chtimes(filepath.Join(dir, "new"), before.ModTime(), before.ModTime()))
		do(os.Rename(filepath.Join(dir, "new"), w.path)) // as editors do; here it is only another inode
		w.expect(3, "b")

		// As Kubernetes does: c.yaml → data/c.yaml, data → one, then data → two.
		write("one/c.yaml", "clients: [{id: c}]")
		write("two/c.yaml", "clients: [{id: d}]")
		do(os.Symlink("one", filepath.Join(dir, "data")))
		do(os.Remove(w.path))
		do(os.Symlink("data/c.yaml", w.path))
		w.expect(3, "c")
		do(os.Symlink("two", filepath.Join(dir, "data.new")))
		do(os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")))
		w.expect(3, "d")
	})
}

func TestWatchSaysOnceThatTheFileIsGone(t *testing.T) {
	watch(t, "clients: [{id: a}]", func(w *watched) {
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.expect(3, "fault: SNOWGATE_CONFIG: "+quotePath(w.path)+" cannot be read: no such file or directory")
		w.expect(10)
		if err := os.Mkdir(w.path, 0o700); err != nil {
			t.Fatal(err)
		}
		w.expect(3, "fault: SNOWGATE_CONFIG: "+quotePath(w.path)+" is a directory; Docker makes one where a mounted file does not exist")
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.write("clients: [{id: a}]")
		w.expect(3, "a")
	})
}

// A signal gets a response at once, also when there is nothing new.
func TestWatchHeedsTheTrigger(t *testing.T) {
	watch(t, "clients: [{id: a}]", func(w *watched) {
		w.trigger <- os.Interrupt
		w.expect(0, "a")
		w.write("clients: [{id: b}]")
		w.trigger <- os.Interrupt
		w.expect(0, "b")
		w.expect(5) // the poll has nothing to add
		w.write("clients: [")
		w.trigger <- os.Interrupt
		w.expect(0, "fault: c.yaml:2:1: not YAML: while parsing a flow node: did not find expected node content")
		w.expect(5)
	})
}

// A file that rests is looked at, not read; one that is touched is read, not parsed.
func TestWatcherReadsOnlyWhatChanged(t *testing.T) {
	path := writeFile(t, "c.yaml", "clients: []")
	reads, parsed, reports := 0, 0, 0
	w := &watcher{
		path: path,
		read: func(path string) ([]byte, error) {
			reads++
			return readContent(path)
		},
		parse: func([]byte, error) (File, error) {
			parsed++
			return File{}, nil
		},
		report: func(File, error) { reports++ },
	}
	for touch := range 3 {
		stamp := time.Date(2026, 1, 1, 0, 0, touch, 0, time.UTC)
		if err := os.Chtimes(path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			w.look()
		}
	}
	if reads != 3 || parsed != 1 || reports != 1 {
		t.Errorf("%d reads, %d times parsed, %d reports of a file touched twice, want 3, 1, 1", reads, parsed, reports)
	}
}

// A file that changes while it is read is not judged.
func TestWatcherLeavesAChangingFileAlone(t *testing.T) {
	path := writeFile(t, "c.yaml", "clients: [{id: a}]")
	reports, torn := 0, true
	w := &watcher{path: path, parse: Config{ConfigFile: path}.parse, report: func(File, error) { reports++ }}
	w.read = func(path string) ([]byte, error) {
		if torn {
			if err := os.WriteFile(path, []byte("clients: [{id: a}, {id: b}]"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return readContent(path)
	}
	w.look()
	w.look()
	if reports != 0 {
		t.Error("what was read during a change was reported")
	}
	torn = false
	w.look()
	w.look()
	if reports != 1 {
		t.Errorf("%d reports after the change, want 1", reports)
	}
}

func TestWatchWithoutFile(t *testing.T) {
	Watch(context.Background(), Config{}, nil, func(File, error) { t.Error("reported something") })
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	Watch(ctx, Config{ConfigFile: "testdata/good.yaml"}, nil, func(File, error) {}) // returns
}
