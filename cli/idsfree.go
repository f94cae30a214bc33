package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"snowgate/config"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/tokens/redisstore"
)

// runIDsFree frees worker numbers that addresses keep (WORKER_ID=registry). It asks Redis itself:
// where the numbers have run out there may be no gateway left that can issue the token to ask with.
func runIDsFree(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("ids free")
	worker := flags.Int64("worker", -1, "free the number `N`")
	unused := flags.Bool("unused", false, "free every number whose lease has ended")
	since := flags.Duration("for", 0, "with -unused: only if it ended that `long` ago, like 24h")
	dry := flags.Bool("dry-run", false, "only tell what would be freed")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	faults := checkFree(*worker, *unused, *since)
	cfg, err := config.Load(onlyVariables(p.Environ, "REDIS_URL", "KEY_PREFIX", "EPOCH", "ID_LAYOUT"))
	if err == nil && !cfg.RedisURL.IsSet() {
		err = errors.New(config.Prefix + "REDIS_URL: needs to be set; without it a gateway's numbers end with its process")
	}
	if err = errors.Join(append(faults, err)...); err != nil {
		return usageError{err}
	}
	wanted := redislease.FreeOptions{Prefix: cfg.KeyPrefix, Worker: *worker, Unused: *since, DryRun: *dry}
	freed, err := freeNumbers(ctx, cfg, wanted)
	if err != nil {
		return err
	}
	did := "freed"
	if *dry {
		did = "would be freed"
	}
	for _, k := range freed {
		fmt.Fprintf(p.Stdout, "worker number %d, kept by %s, %s\n", k.Number, k.Address, did)
	}
	if len(freed) == 0 {
		return errors.New("no number is unused: every one that an address keeps is leased by a gateway, or was until less than -for ago; " +
			"stop gateways that are not needed, and wait 60 s for the leases of those that were killed")
	}
	return nil
}

// checkFree tells everything that is wrong with the flags.
func checkFree(worker int64, unused bool, since time.Duration) []error {
	var faults []error
	if (worker >= 0) == unused {
		faults = append(faults, errors.New("ids free: needs exactly one of -worker and -unused"))
	}
	if since < 0 || since > 0 && !unused {
		faults = append(faults, errors.New("ids free: -for goes with -unused, and is not negative"))
	}
	return faults
}

// freeNumbers connects to the configured Redis and frees numbers.
func freeNumbers(ctx context.Context, cfg config.Config, wanted redislease.FreeOptions) ([]redislease.Kept, error) {
	scheme, err := idgen.NewScheme(cfg.IDLayout, cfg.Epoch)
	if err != nil {
		return nil, usageError{err}
	}
	store, err := redisstore.Open(redisstore.Options{URL: cfg.RedisURL.Reveal(), Prefix: cfg.KeyPrefix, Secure: cfg.RedisTLS().Apply})
	if err != nil {
		return nil, usageError{err}
	}
	defer func() { _ = store.Close() }()
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	return redislease.Free(ctx, store.Client(), scheme, wanted)
}
