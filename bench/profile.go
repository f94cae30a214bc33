package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/pprof/profile"
)

// buildProfiled builds the gateway of a source tree so that it can be profiled:
// with overlay/profile.go laid over its main package, which no other build has.
func (s *site) buildProfiled(ctx context.Context, source string, flags ...string) (binary string, err error) {
	if source, err = filepath.Abs(source); err != nil {
		return "", err
	}
	file, err := filepath.Abs("overlay/profile.go")
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(source, "profile_overlay.go"): file}})
	if err != nil {
		return "", err
	}
	path, err := s.write("overlay.json", string(overlay))
	if err != nil {
		return "", err
	}
	binary = filepath.Join(s.dir, "snowgate-profiled")
	return binary, goBuild(ctx, source, binary, ".", append(flags, "-tags", "profile", "-overlay", path)...)
}

// record profiles the process, which is a profiled build started with
// BENCH_PROFILE=path, while work is done.
func (p *process) record(ctx context.Context, path string, work func() error) (*profile.Profile, error) {
	p.signal(syscall.SIGUSR1)
	if err := p.until(ctx, func() bool { return exists(path + ".part") }); err != nil {
		return nil, err
	}
	if err := work(); err != nil {
		return nil, err
	}
	p.signal(syscall.SIGUSR2)
	if err := p.until(ctx, func() bool { return exists(path) }); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return profile.Parse(file)
}
