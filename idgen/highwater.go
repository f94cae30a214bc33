package idgen

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ErrCorrupt says that the file of a HighWater source is not what HighWater wrote.
var ErrCorrupt = errors.New("idgen: the ceiling file is corrupt")

// ErrLocked says that another process uses the file of a HighWater source.
var ErrLocked = errors.New("idgen: the ceiling file is in use by another process")

// highWaterLead is how far ahead of the clock the recorded ceiling is.
const highWaterLead = 3 * time.Second

// HighWater gives a source a memory: a local file that records the ceiling
// ahead of its use. A generator that starts anew, after a crash or with a clock
// that was set back, begins above everything issued before. The file belongs to
// one process at a time, which holds a lock on path + ".lock"; it is replaced
// atomically and is on disk before a timestamp it covers is issued. A missing
// file is a first start; deleting it gives up the protection. The directory must
// exist.
//
// Acquire fails with ErrLocked, ErrCorrupt, or ErrSchemeMismatch if the layout
// or the epoch differs from what the file says.
func HighWater(path string, src Source) Source { return highWater{path, src} }

type highWater struct {
	path   string
	source Source
}

func (h highWater) Acquire(ctx context.Context, s Scheme, now int64) (Lease, error) {
	lock, err := lockFile(h.path + ".lock")
	if err != nil {
		return nil, err
	}
	lease, err := h.acquire(ctx, s, now, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lease, nil
}

func (h highWater) acquire(ctx context.Context, s Scheme, now int64, lock *os.File) (Lease, error) {
	mark, err := readMark(h.path, s.Fingerprint())
	if err != nil {
		return nil, err
	}
	inner, err := h.source.Acquire(ctx, s, now)
	if err != nil {
		return nil, err
	}
	l := &highWaterLease{
		inner: inner, path: h.path, fingerprint: s.Fingerprint(), lock: lock,
		floor: max(inner.Floor(), mark+1),
	}
	if err := l.record(max(now, l.floor) + highWaterLead.Milliseconds()); err != nil {
		return nil, errors.Join(err, inner.Release(ctx, l.floor-1))
	}
	return l, nil
}

// highWaterLease is the inner lease, fenced by the file.
type highWaterLease struct {
	inner       Lease
	path        string
	fingerprint string
	lock        *os.File
	floor, mark int64
}

func (l *highWaterLease) Worker() Worker { return l.inner.Worker() }
func (l *highWaterLease) Floor() int64   { return l.floor }
func (l *highWaterLease) Ceiling() int64 { return min(l.mark, l.inner.Ceiling()) }

func (l *highWaterLease) Extend(ctx context.Context, now int64) (int64, error) {
	ceiling, err := l.inner.Extend(ctx, now)
	if err != nil {
		if errors.Is(err, ErrLeaseLost) { // the next Acquire locks again
			err = errors.Join(err, l.lock.Close())
		}
		return l.Ceiling(), err
	}
	if mark := now + highWaterLead.Milliseconds(); mark > l.mark {
		if err := l.record(mark); err != nil {
			return l.Ceiling(), err
		}
	}
	return min(l.mark, ceiling), nil
}

func (l *highWaterLease) Release(ctx context.Context, last int64) error {
	// The order matters: the file may be read as soon as it is unlocked.
	err := l.record(last)
	return errors.Join(err, l.inner.Release(ctx, last), l.lock.Close())
}

// record makes a ceiling durable.
func (l *highWaterLease) record(mark int64) error {
	if err := writeMark(l.path, l.fingerprint, mark); err != nil {
		return fmt.Errorf("idgen: record the ceiling: %w", err)
	}
	l.mark = mark
	return nil
}

// The file is one line of text for people, which ends in a checksum.
const markFormat = "idgen-ceiling v1 %s %d"

func markLine(fingerprint string, mark int64) string {
	body := fmt.Sprintf(markFormat, fingerprint, mark)
	return fmt.Sprintf("%s %08x\n", body, crc32.ChecksumIEEE([]byte(body)))
}

// readMark returns the recorded ceiling, -1 if there is no file.
func readMark(path, fingerprint string) (int64, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("idgen: read the ceiling: %w", err)
	}
	return parseMark(path, string(text), fingerprint)
}

func parseMark(path, text, fingerprint string) (int64, error) {
	var found string
	var mark int64
	_, err := fmt.Sscanf(text, markFormat, &found, &mark)
	if err != nil || mark < -1 || text != markLine(found, mark) {
		return 0, fmt.Errorf("%w: %s; restore it, or remove it if no id was issued within the last seconds"+
			" and the clock has not been set back", ErrCorrupt, path)
	}
	if found != fingerprint {
		return 0, fmt.Errorf("%w: %s says %s, configured is %s", ErrSchemeMismatch, path, found, fingerprint)
	}
	return mark, nil
}

// writeMark replaces the file: a reader, or a crash, meets the old or the new
// one, and the new one is on disk when it returns.
func writeMark(path, fingerprint string, mark int64) (err error) {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(markLine(fingerprint, mark))
	if err == nil {
		err = dataSync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
