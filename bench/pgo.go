package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"

	"snowgate/bench/load"
)

// duty is a part of what a gateway does all day.
type duty struct {
	name string
	env  []string
	do   func(context.Context, *bench, *gateway, *target) error
}

func duties() []duty {
	return []duty{
		{"cached", nil, forward(false)},
		{"uncached", []string{"SNOWGATE_CACHE_TTL=0"}, forward(false)},
		{"http2", []string{"SNOWGATE_H2C=true"}, forward(true)},
		{"issue", nil, func(ctx context.Context, b *bench, g *gateway, _ *target) error {
			_, err := g.post(ctx, b.site, b.length)
			return err
		}},
		{"introspect", nil, introspect},
	}
}

// runPGO profiles all duties and writes the profile by which releases are
// optimised.
func runPGO(ctx context.Context, b *bench) error {
	binary, err := b.site.buildProfiled(ctx, b.source)
	if err != nil {
		return err
	}
	var profiles []*profile.Profile
	for _, d := range duties() {
		recorded, err := b.profileDuty(ctx, binary, d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		profiles = append(profiles, recorded)
	}
	merged, err := profile.Merge(profiles)
	if err != nil {
		return err
	}
	for _, m := range merged.Mapping {
		m.File = "" // where the binary was
	}
	return writeProfile(filepath.Join(b.source, gatewayProfile), merged)
}

// runProfile profiles validated, cached, proxied requests for a flame graph, with the gateway
// optimised as releases are.
func runProfile(ctx context.Context, b *bench) error {
	binary, err := b.site.buildProfiled(ctx, b.source, "-pgo="+gatewayProfile)
	if err != nil {
		return err
	}
	recorded, err := b.profileDuty(ctx, binary, duties()[0])
	if err != nil {
		return err
	}
	return writeProfile(filepath.Join(b.out, "cpu.pprof"), recorded)
}

func writeProfile(path string, p *profile.Profile) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return p.Write(file)
}

// profileDuty starts a profiled gateway, warms it up and records what it does.
func (b *bench) profileDuty(ctx context.Context, binary string, d duty) (*profile.Profile, error) {
	path := filepath.Join(b.site.dir, d.name+".pprof")
	g, err := b.site.startSnowgate(ctx, setup{binary: binary, env: append([]string{"BENCH_PROFILE=" + path}, d.env...)})
	if err != nil {
		return nil, err
	}
	t := &target{url: g.url + "/orders", gateway: []*process{g.process}, redis: []*process{g.redis}}
	defer t.end()
	if t.bearers, err = g.bearers(ctx, b.site); err != nil {
		return nil, err
	}
	if _, err := t.saturate(ctx, false, warmUp); err != nil {
		return nil, err
	}
	return g.record(ctx, path, func() error { return d.do(ctx, b, g, t) })
}

func forward(http2 bool) func(context.Context, *bench, *gateway, *target) error {
	return func(ctx context.Context, b *bench, _ *gateway, t *target) error {
		_, err := t.saturate(ctx, http2, b.length)
		return err
	}
}

// introspect asks about the target's token.
func introspect(ctx context.Context, b *bench, g *gateway, t *target) error {
	asked := post("/oauth2/introspect", g.address, clientID, g.secret, "token="+t.tokens[0])
	_, err := load.Run(ctx, load.Plan{
		Address: g.address, Connections: connections, Length: b.length,
		Request: func(int) []byte { return asked },
	})
	return err
}
