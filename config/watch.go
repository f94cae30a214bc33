package config

import (
	"context"
	"crypto/sha256"
	"os"
	"time"
)

// PollInterval is how often [Watch] looks at the file.
const PollInterval = time.Second

// Watch reads the configuration file again when it changes, or when trigger
// (SIGHUP) says so, and calls report with what it found: a new valid [File], or
// the [Faults] of one that is not valid, in which case the state before stays
// good. The same content is reported once; after a trigger it is reported in
// any case, because somebody waits for a response. loaded is the file in use.
//
// Watch returns when ctx ends, or at once if there is no ConfigFile. It calls
// report on its own goroutine, never after it has returned.
//
// It polls instead of listening to inotify. In practice the file itself does not change; the path
// leads to another one: an editor renames, Kubernetes swaps a symlink two directories up, Docker
// bind-mounts one inode, and network file systems and some desktop hosts send no events at all. A
// stat per second sees all of that and costs nothing.
//
// A file is not read while it is written: it is read once its identity (inode, size, time of
// change) has stayed the same from one look to the next, so a change takes one to two intervals to
// be seen.
func Watch(ctx context.Context, c Config, trigger <-chan os.Signal, report func(File, error)) {
	if c.ConfigFile == "" {
		return
	}
	w := &watcher{path: c.ConfigFile, read: readContent, parse: c.parse, report: report, reported: c.File.sum}
	ticker := time.NewTicker(PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.look()
		case <-trigger:
			w.load(true)
		}
	}
}

// watcher is the state of [Watch]: a pure sequence of looks and loads.
type watcher struct {
	path   string
	read   func(path string) ([]byte, error)
	parse  func(content []byte, err error) (File, error)
	report func(File, error)

	seen     identity          // at the last look
	loaded   identity          // at the last load
	reported [sha256.Size]byte // of the content last reported, or of the reason why there was none
}

// identity tells one state of what a path leads to from another. Two states
// with the same identity are taken for the same content.
type identity struct {
	info os.FileInfo // nil if there was an error
	err  string
}

func identify(path string) identity {
	info, err := os.Stat(path)
	if err != nil {
		return identity{err: err.Error()}
	}
	return identity{info: info}
}

func (a identity) same(b identity) bool {
	if a.info == nil || b.info == nil {
		return a.info == b.info && a.err == b.err
	}
	return os.SameFile(a.info, b.info) && a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime())
}

// look reads the file if it has changed and the change is over.
func (w *watcher) look() {
	now := identify(w.path)
	stable := now.same(w.seen)
	w.seen = now
	if stable && !now.same(w.loaded) {
		w.load(false)
	}
}

// load reads the file and reports it if it has changed, or in any case if always is set. It parses
// only a file that it reports.
func (w *watcher) load(always bool) {
	before := identify(w.path)
	content, err := w.read(w.path)
	if !before.same(identify(w.path)) && !always {
		return // it changed meanwhile; the next look decides
	}
	w.loaded = before
	known := content
	if err != nil {
		known = []byte(err.Error())
	}
	sum := sha256.Sum256(known)
	if sum == w.reported && !always {
		return
	}
	w.reported = sum
	w.report(w.parse(content, err))
}
