package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"snowgate/clients"
	"snowgate/clients/redisclients"
	"snowgate/config"
	"snowgate/idgen"
	"snowgate/tokens/redisstore"
)

// clockNote is the difference between the clocks of Redis and of this host from which on a check
// mentions it.
const clockNote = 250 * time.Millisecond

// CheckStart returns every fault that a start with cfg on this host would find without Redis. It
// ignores faults that depend on other processes, such as an address in use: a check beside a
// running gateway must pass.
func CheckStart(ctx context.Context, cfg config.Config) error {
	var faults []error
	g, err := newGateway(cfg, zerolog.Nop(), "", "")
	if err == nil {
		g.close()
	}
	faults = append(faults, err)
	if cfg.WorkerID.Source == config.WorkerIPv4 || cfg.WorkerID.Source == config.WorkerAuto {
		faults = append(faults, checkOctet(ctx, cfg))
	}
	_, err = idgen.ParsePolicy(cfg.IDRollback, cfg.IDRollbackWait, cfg.IDRingSize)
	faults = append(faults, err)
	if scheme, err := idgen.NewScheme(cfg.IDLayout, cfg.Epoch); err == nil && cfg.StateFile != "" {
		if err := idgen.CheckHighWater(cfg.StateFile, scheme); err != nil {
			faults = append(faults, fmt.Errorf("%sSTATE_FILE: %w", config.Prefix, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return &ConfigError{err}
	}
	return nil
}

// checkOctet returns an error if this host has no IPv4 address, or one whose last octet is too wide.
func checkOctet(ctx context.Context, cfg config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	address, err := idgen.LocalIPv4(ctx, redisAddress(cfg.RedisURL))
	if err != nil {
		return fmt.Errorf("%sWORKER_ID: %w", config.Prefix, err)
	}
	return fitOctet(cfg, address)
}

// CheckRedis returns every fault that a start with cfg would find in Redis, and notes about
// settings that may not be intended. It writes nothing there.
func CheckRedis(ctx context.Context, cfg config.Config) (notes []string, err error) {
	if !cfg.RedisURL.IsSet() {
		return nil, &ConfigError{fmt.Errorf("-redis: %sREDIS_URL is not set: there is no Redis to look at", config.Prefix)}
	}
	store, err := OpenStore(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	begin := time.Now()
	now, err := store.Time(ctx)
	if err != nil {
		return nil, unusable(ctx, cfg, err)
	}
	took := time.Since(begin)
	if ahead := now.Sub(begin.Add(took / 2)); ahead.Abs() > clockNote+took/2 {
		notes = append(notes, clockDifference(ahead))
	}
	var faults []error
	if now.Before(cfg.Epoch) {
		faults = append(faults, epochAhead(cfg, now))
	}
	err = missingRights(ctx, cfg, store)
	if errors.Is(err, redisstore.ErrRightsUnknown) {
		notes, err = append(notes, config.Prefix+"REDIS_URL: "+err.Error()), nil
	}
	faults = append(faults, err)
	recorded, err := store.Recorded(ctx)
	if err != nil {
		faults = append(faults, unusable(ctx, cfg, err))
	} else if err := store.Mismatch(InstallationOf(cfg), recorded); err != nil {
		faults = append(faults, wayOut(err))
	}
	settings := store.Settings(ctx)
	switch policy := settings.Policy; policy {
	case "noeviction":
		for _, remark := range settings.Remarks(cfg.WaitReplicas) {
			notes = append(notes, config.Prefix+"REDIS_URL: "+remark.Text)
		}
	case "":
		notes = append(notes, config.Prefix+"REDIS_URL: Redis does not tell its maxmemory-policy; it must be noeviction")
	default:
		faults = append(faults, fmt.Errorf("%sREDIS_URL: maxmemory-policy of this Redis is %s: when it is full it throws live tokens and revocation rules away; set it to noeviction",
			config.Prefix, policy))
	}
	if err == nil {
		faults = append(faults, checkClash(ctx, cfg, store))
	}
	return notes, allFaults(faults)
}

// allFaults joins faults. The result is a [*ConfigError], unless one of them says that Redis is
// away.
func allFaults(faults []error) error {
	err := errors.Join(faults...)
	for _, fault := range faults {
		if _, ok := errors.AsType[*redisstore.Error](fault); ok {
			if _, usage := errors.AsType[*ConfigError](fault); !usage {
				return err
			}
		}
	}
	if err != nil {
		return &ConfigError{err}
	}
	return nil
}

// unusable adds the way out to an error of Redis. The result is a [*ConfigError] if the
// configuration names the wrong server or the wrong user, and not if Redis is away.
func unusable(ctx context.Context, cfg config.Config, err error) error {
	failure, ok := errors.AsType[*redisstore.Error](err)
	if !ok {
		return err
	}
	told := fmt.Errorf("%s: %w", redisHint(ctx, cfg, err), err)
	if address := redisAddress(cfg.RedisURL); address != "" && !strings.Contains(told.Error(), address) {
		told = fmt.Errorf("%w (%s)", told, address)
	}
	if failure.Kind == redisstore.KindAuth || failure.Kind == redisstore.KindReadOnly {
		return &ConfigError{told}
	}
	return told
}

// clockDifference says that the clock of Redis is ahead of that of this host, or behind.
func clockDifference(ahead time.Duration) string {
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	return fmt.Sprintf("%sREDIS_URL: the clock of Redis is %v %s that of this host: ids and expiries follow Redis; run NTP on both",
		config.Prefix, ahead.Abs().Round(10*time.Millisecond), direction)
}

// missingRights returns an error that names what the user of Redis lacks.
func missingRights(ctx context.Context, cfg config.Config, store *redisstore.Store) error {
	missing, err := store.MissingRights(ctx)
	switch {
	case errors.Is(err, redisstore.ErrRightsUnknown):
		return err
	case err != nil:
		return unusable(ctx, cfg, err)
	case missing != nil:
		return fmt.Errorf("%sREDIS_URL: its user may not: %s; grant it with ACL SETUSER … ~%s:* ~{%s}:* &{%s}:* and those commands",
			config.Prefix, strings.Join(missing, ", "), cfg.KeyPrefix, cfg.KeyPrefix, cfg.KeyPrefix)
	}
	return nil
}

// checkClash returns an error if a configured client is in the registry, too.
func checkClash(ctx context.Context, cfg config.Config, store *redisstore.Store) error {
	known := clients.NewRegistry(cfg.TokenTTL)
	registry := redisclients.New(store.Client(), known, redisclients.Options{
		Prefix: cfg.KeyPrefix, Timeout: max(cfg.StoreTimeout, time.Second), MaxTTL: cfg.TokenMaxTTL, Now: time.Now, Report: func(error) {},
	})
	if err := known.ReplaceFile(cfg.File.Clients); err != nil {
		return err
	}
	if err := registry.Refresh(ctx); err != nil {
		return unusable(ctx, cfg, err)
	}
	return clashOf(known)
}
