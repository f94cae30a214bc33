package idgen

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrCorrupt says that HighWater did not write the content of its ceiling file.
var ErrCorrupt = errors.New("idgen: the ceiling file is corrupt")

// ErrLocked says that another process uses the ceiling file.
var ErrLocked = errors.New("idgen: the ceiling file is in use by another process")

// highWaterLead is how far ahead of the clock the recorded ceiling is.
const highWaterLead = 3 * time.Second

// HighWater wraps src and records the ceiling in a local file before the ceiling is used. After a
// crash, or with a clock that was set back, a new generator starts above every id issued before.
//
// One process at a time may use the file and holds a lock on path + ".lock". The file is replaced
// atomically, and is on disk before any timestamp it covers is issued. A missing file means a first
// start, so deleting the file gives up the protection. The directory must exist.
//
// Acquire fails with ErrLocked, with ErrCorrupt, or with ErrSchemeMismatch if the file records
// another layout or epoch.
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

// highWaterLease limits the inner lease to the timestamps that the file covers.
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
	// The order matters: another process may read the file as soon as it is unlocked.
	err := l.record(last)
	return errors.Join(err, l.inner.Release(ctx, last), l.lock.Close())
}

// record writes the ceiling to the file.
func (l *highWaterLease) record(mark int64) error {
	if err := writeMark(l.path, l.fingerprint, mark); err != nil {
		return fmt.Errorf("idgen: record the ceiling: %w", err)
	}
	l.mark = mark
	return nil
}

// The file is one line of readable text that ends in a checksum.
const markFormat = "idgen-ceiling v1 %s %d"

func markLine(fingerprint string, mark int64) string {
	body := fmt.Sprintf(markFormat, fingerprint, mark)
	return fmt.Sprintf("%s %08x\n", body, crc32.ChecksumIEEE([]byte(body)))
}

// readMark returns the recorded ceiling, or -1 if there is no file.
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
	found, mark, err := parseMarkLine(path, text)
	if err != nil {
		return 0, err
	}
	if found != fingerprint {
		return 0, fmt.Errorf("%w: %s says %s, configured is %s", ErrSchemeMismatch, path, found, fingerprint)
	}
	return mark, nil
}

// parseMarkLine parses the content of the file: the fingerprint of a scheme, and a ceiling.
func parseMarkLine(path, text string) (fingerprint string, mark int64, err error) {
	_, err = fmt.Sscanf(text, markFormat, &fingerprint, &mark)
	if err != nil || mark < -1 || text != markLine(fingerprint, mark) {
		return "", 0, fmt.Errorf("%w: %s; restore it, or remove it if no id was issued within the last seconds"+
			" and the clock has not been set back", ErrCorrupt, path)
	}
	return fingerprint, mark, nil
}

// CheckHighWater returns the error that [HighWater] would fail with for this file and s, except
// that it ignores the lock of a running process. A missing file is no error. CheckHighWater leaves
// no file behind.
func CheckHighWater(path string, s Scheme) error {
	if _, err := readMark(path, s.Fingerprint()); err != nil {
		return err
	}
	probe, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".check-*")
	if err != nil {
		return fmt.Errorf("idgen: record the ceiling: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// HighWaterScheme returns the scheme recorded in the file of a [HighWater] source.
func HighWaterScheme(path string) (Scheme, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Scheme{}, fmt.Errorf("idgen: read the ceiling: %w", err)
	}
	fingerprint, _, err := parseMarkLine(path, string(text))
	if err != nil {
		return Scheme{}, err
	}
	return parseFingerprint(fingerprint)
}

// RebaseHighWater records s as the scheme in the file of a [HighWater] source. New ids start above
// the recorded ceiling. No process may use the file meanwhile. Ids issued under the old scheme can
// equal new ids; the caller must rule that out.
func RebaseHighWater(path string, s Scheme) (err error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("idgen: read the ceiling: %w", err)
	}
	fingerprint, mark, err := parseMarkLine(path, string(text))
	if err != nil {
		return err
	}
	old, err := parseFingerprint(fingerprint)
	if err != nil {
		return err
	}
	if mark = s.Since(old.At(mark)); mark > s.layout.mask[FieldTime] {
		return fmt.Errorf("%w: %s cannot hold the recorded ceiling", ErrTimeExhausted, s.layout)
	}
	return writeMark(path, s.Fingerprint(), max(mark, -1))
}

// parseFingerprint parses the text returned by [Scheme.Fingerprint].
func parseFingerprint(text string) (Scheme, error) {
	layout, epoch, _ := strings.Cut(text, "@")
	l, err := ParseLayout(layout)
	if err != nil {
		return Scheme{}, err
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", epoch)
	if err != nil {
		return Scheme{}, fmt.Errorf("idgen: %q is not the fingerprint of a scheme: %w", text, err)
	}
	return NewScheme(l, at)
}

// writeMark replaces the file atomically: a reader finds the old file or the new one, even after a
// crash. When writeMark returns, the new file is on disk.
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
