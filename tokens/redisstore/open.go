package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"snowgate/internal/nonblock"
	"snowgate/internal/redisscript"
)

// Defaults of [Options].
const (
	DefaultPrefix  = "sg"
	DefaultTimeout = 250 * time.Millisecond
)

// connBuffer is the size of the read and write buffers of a connection. Records have about a
// hundred bytes, so with the default of go-redis, 32 KiB, idle buffers would take 1.3 MB.
const connBuffer = 4 << 10

// batchBuffer is the same for a connection that carries batches, in place of the 128 KiB of
// go-redis. A larger read than [nonblock.Most] would inform the scheduler.
const batchBuffer = nonblock.Most

// Options configures a [Store].
type Options struct {
	// URL names the server: redis://, rediss:// (TLS), unix://,
	// redis+sentinel://, redis+cluster://, and rediss+… for TLS with the last two.
	// The forms and parameters are those of go-redis's ParseURL,
	// ParseFailoverURL and ParseClusterURL: a Sentinel URL has the Sentinel's
	// user and password in front of the host, and those of the data nodes in
	// the parameters username and password; further hosts are addr parameters.
	URL string
	// Prefix starts every key. Default: "sg".
	Prefix string
	// Timeout limits Load, Save, Delete and AddRule, for which requests wait, with all retries and
	// whatever the deadline of the context. It should be at least twice the round trip to Redis.
	// All other operations have four times as long, because a new connection takes up to three
	// round trips before the command. Default: 250 ms.
	Timeout time.Duration
	// Observe, if set, is called for every command with its name in lower case, its duration, and
	// its [Kind] of failure, "ok" if there was none. It is called concurrently and must not block.
	Observe func(command string, d time.Duration, kind string)
	// WaitReplicas makes every revocation wait until that many replicas have it (WAIT), so that a
	// failover to one of them does not undo it. If too few replicas confirm in time, the revocation
	// has been made, and the operation returns an error, so that the caller repeats it. In a
	// cluster, the replicas are those of the shard with the key. Default: 0.
	WaitReplicas int
	// WaitIssue makes Save wait in the same way, so that a failover does not lose a new token. It
	// has no effect without WaitReplicas.
	WaitIssue bool
	// WaitTimeout limits that wait, in addition to Timeout. Default: Timeout.
	WaitTimeout time.Duration
	// Secure, if set, is called with the TLS configuration of the connections, if the URL asks for
	// TLS.
	Secure func(*tls.Config)
	// Once is for a Store that runs only a few commands, such as a check. It turns the breaker off,
	// so that every failure is reported. Without Once, commands fail at once for a while after two
	// commands that did not reach the server.
	Once bool
}

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)

// Open returns a store on the server that opts names. The store connects when it is first used, so
// an error is about opts only. No error contains the password.
func Open(opts Options) (*Store, error) {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	if !validPrefix.MatchString(opts.Prefix) || len(opts.Prefix) > 64 {
		return nil, fmt.Errorf("redisstore: the key prefix %q is not 1 to 64 characters of A-Za-z0-9._:-", opts.Prefix)
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.Timeout < time.Millisecond {
		return nil, fmt.Errorf("redisstore: the timeout %s is shorter than a millisecond", opts.Timeout)
	}
	if err := opts.checkWait(); err != nil {
		return nil, err
	}
	s := &Store{prefix: opts.Prefix, timeout: opts.Timeout, probes: newProbes(), observe: opts.Observe, once: opts.Once}
	if opts.WaitReplicas > 0 {
		s.waitReplicas, s.waitTimeout = opts.WaitReplicas, cmp.Or(opts.WaitTimeout, opts.Timeout)
		s.waitIssue = opts.WaitIssue
	}
	client, err := s.connect(opts)
	if err != nil {
		s.probes.close()
		return nil, err
	}
	s.client = client
	s.scripts = redisscript.NewRunner(client, []string{s.sharedKey("rev"), s.sharedKey("tagkey")}, s.pushChannel())
	if _, ok := client.(*redis.Client); ok {
		s.batch = &batcher{client: client, timeout: PatientTimeout(opts.Timeout)}
	}
	return s, nil
}

// checkWait checks the options for waiting for replicas.
func (o Options) checkWait() error {
	switch {
	case o.WaitReplicas < 0 || o.WaitTimeout < 0 || o.WaitTimeout > 0 && o.WaitTimeout < time.Millisecond:
		return fmt.Errorf("redisstore: cannot wait %s for %d replicas", o.WaitTimeout, o.WaitReplicas)
	}
	return nil
}

// connect makes the client for the topology of the scheme of the URL, and adds the hooks: the
// observer outermost, and then, for each server, the breaker and the dialling.
func (s *Store) connect(opts Options) (redis.UniversalClient, error) {
	scheme, _, found := strings.Cut(opts.URL, "://")
	if !found {
		return nil, errors.New("redisstore: the URL has no scheme; it looks like redis://:password@host:6379/0")
	}
	secure, topology, _ := strings.Cut(scheme, "+")
	address, err := prepare(opts, secure, topology)
	if err != nil {
		return nil, err
	}
	var client redis.UniversalClient
	switch {
	case topology == "cluster":
		client, err = s.cluster(address, opts.Secure)
	case topology == "sentinel":
		client, err = s.sentinel(address, opts.Secure)
	case topology == "" && (secure == "redis" || secure == "rediss" || secure == "unix"):
		client, err = s.standalone(address, opts.Secure)
	default:
		return nil, fmt.Errorf("redisstore: the URL scheme %q is none of redis, rediss, unix, redis+sentinel, redis+cluster", scheme)
	}
	if err != nil {
		return nil, urlError(opts.URL, err)
	}
	if opts.Observe != nil {
		client.AddHook(observer{opts.Observe})
	}
	if node, ok := client.(*redis.Client); ok {
		s.guard(node, nil)
	}
	return client, nil
}

func (s *Store) standalone(address string, secure func(*tls.Config)) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	secured(o.TLSConfig, secure)
	o.ContextTimeoutEnabled = true
	o.ReadBufferSize, o.WriteBufferSize = connBuffer, connBuffer
	o.PipelineReadBufferSize, o.PipelineWriteBufferSize = batchBuffer, batchBuffer
	o.DisableIdentity, o.DialerRetries = true, 1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

func (s *Store) sentinel(address string, secure func(*tls.Config)) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(address)
	if err != nil {
		return nil, err
	}
	if o.MasterName == "" {
		return nil, errNoMaster
	}
	secured(o.TLSConfig, secure)
	o.ContextTimeoutEnabled = true
	o.ReadBufferSize, o.WriteBufferSize = connBuffer, connBuffer
	o.PipelineReadBufferSize, o.PipelineWriteBufferSize = batchBuffer, batchBuffer
	o.DisableIdentity, o.DialerRetries = true, 1
	return redis.NewFailoverClient(o), nil
}

func (s *Store) cluster(address string, secure func(*tls.Config)) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, err
	}
	secured(o.TLSConfig, secure)
	o.ContextTimeoutEnabled = true
	o.ReadBufferSize, o.WriteBufferSize = connBuffer, connBuffer
	o.DisableIdentity, o.DialerRetries = true, 1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClusterClient(o)
	// Each node has a breaker of its own, so that commands for the other shards go on while one is
	// down.
	//
	// While the breaker of a node is open, the node cannot redirect a command to another node, and
	// go-redis reads the state of the cluster only once a minute.
	client.OnNewNode(func(node *redis.Client) { s.guard(node, client.ReloadState) })
	return client, nil
}

// guard adds the hooks of the breaker and of the dialling to the client of one server. If reload is
// set, the breaker calls it while the server is down.
func (s *Store) guard(node *redis.Client, reload func(context.Context)) {
	if s.once {
		node.AddHook(dialing{})
		return
	}
	node.AddHook(&breaker{
		probes:       s.probes,
		reload:       reload,
		leastTimeout: s.timeout / 2,
		ping: func(ctx context.Context) error {
			ctx, cancel := s.patient(asProbe(ctx))
			defer cancel()
			return node.Ping(ctx).Err()
		},
	})
	node.AddHook(dialing{})
}

var (
	errNoMaster = errors.New("redisstore: a Sentinel URL needs the parameter master_name")
	errReplica  = errors.New("redisstore: tokens are read from the primary only; remove read_only, replica_only and route_… from the URL")
)

// prepare returns the URL in the form that go-redis parses. It adds parameters that limit each wait
// for a silent server to the timeout, unless the URL sets them itself. The context of an operation
// limits the operation in any case.
func prepare(opts Options, secure, topology string) (string, error) {
	u, err := url.Parse(opts.URL)
	if err != nil {
		return "", urlError(opts.URL, err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", urlError(opts.URL, err)
	}
	for _, name := range []string{"read_only", "replica_only", "route_by_latency", "route_randomly"} {
		if query.Has(name) {
			return "", errReplica
		}
	}
	u.Scheme = secure
	if topology == "sentinel" && u.Port() == "" {
		u.Host = u.Host + ":26379"
	}
	dial := opts.Timeout
	if secure == "rediss" {
		dial *= 2 // it includes the TLS handshake
	}
	for name, value := range map[string]string{
		"client_name":       "snowgate",
		"dial_timeout":      dial.String(),
		"read_timeout":      opts.Timeout.String(),
		"write_timeout":     opts.Timeout.String(),
		"pool_timeout":      opts.Timeout.String(),
		"max_retries":       "1",  // for a connection that was lost while idle
		"min_retry_backoff": "-1", // waiting would not help within the timeout
		"max_retry_backoff": "-1",
	} {
		if !query.Has(name) {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// urlError returns an error that says what is wrong with a URL. It quotes no part that may contain
// a password: if the password has a slash or a question mark, that may be any part.
func urlError(address string, err error) error {
	if errors.Is(err, errNoMaster) || errors.Is(err, errReplica) {
		return err
	}
	if strings.ContainsAny(address, "@") || strings.Contains(address, "password") {
		return errors.New("redisstore: the URL is not valid; in a user name or password, percent-encode every character but letters, digits and -._~")
	}
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err
	}
	return fmt.Errorf("redisstore: the URL is not valid: %w", err)
}

// secured applies secure to config, if there is one.
func secured(config *tls.Config, secure func(*tls.Config)) {
	if config == nil {
		return
	}
	config.MinVersion = tls.VersionTLS12
	if secure != nil {
		secure(config)
	}
}
