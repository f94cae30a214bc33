// Package config is the only reader of the environment and of the
// configuration file. It turns them into one validated value, or into the list
// of everything that is wrong with them.
//
// The environment says how this process runs and is read once, by [Load]. The
// file says who may ask for tokens and where requests go; it is read by Load as
// well and then again whenever it changes, by [Watch].
//
// Nothing is accepted and ignored: a variable or a key that this build does not know is a fault,
// because it is a typing error, or asks for something that would not be done. All faults are
// reported together as [Faults], each with the name of its variable or its line and column in the
// file, and none of them repeats a secret.
//
// # Rules for variables
//
// All names start with SNOWGATE_. A variable may be given as NAME_FILE instead:
// then the content of that file is the value, less one line break at its end,
// as Docker and Kubernetes hand over secrets. A variable that is set but empty
// counts as not set, because that is what compose files make of an unset one;
// the exception is SNOWGATE_ADMIN_LISTEN, which is turned off that way.
//
// Two kinds of unknown names are let through. SNOWGATE_TEST_… belongs to the
// test suite. And for a service called "snowgate" (or "snowgate-…") Kubernetes
// and Docker put variables such as SNOWGATE_SERVICE_HOST and
// SNOWGATE_PORT=tcp://10.0.0.1:8080 into every container beside it.
// SNOWGATE_PORT=8080 is none of these, and so a fault.
package config

import (
	"fmt"
	"slices"
	"time"

	"snowgate/clients"
	"snowgate/idgen"
)

// Prefix starts the name of every environment variable of the gateway.
const Prefix = "SNOWGATE_"

// Config is the effective configuration, made by [Load]. Treat it as immutable;
// it is then safe for concurrent use.
//
// The tags are the source of the variable table in the documentation: env is the name
// without [Prefix], envDefault what an unset variable means, doc what it is
// for. [Variables] reads them.
type Config struct {
	// Listen and AdminListen are host:port addresses. An empty AdminListen
	// turns the admin listener off.
	Listen      string `env:"LISTEN" envDefault:":8080" doc:"address of the public listener"`
	AdminListen string `env:"ADMIN_LISTEN" envDefault:"127.0.0.1:9090" doc:"address of the admin listener (metrics, health); set to nothing to turn it off"`

	// ConfigFile is the path that File was read from, empty if there is none.
	ConfigFile string `env:"CONFIG" doc:"path of the YAML file with clients and routes; reloaded on change and on SIGHUP, a bad file keeps the old state"`

	// RedisURL is secret because it may hold a password. Empty is the embedded
	// store.
	RedisURL Secret `env:"REDIS_URL" doc:"redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://, more nodes as ?addr=HOST:PORT&addr=HOST:PORT; empty: embedded, in memory, this process only"`
	// RedisCA, RedisCert and RedisKey are for TLS to Redis, see [RedisTLS].
	RedisCA   string `env:"REDIS_CA" doc:"PEM file with the CA of Redis's certificate, in place of the CAs of this host, or the PEM itself; for rediss:// only; the file is read for each connection"`
	RedisCert string `env:"REDIS_CERT" doc:"PEM file with the certificate (chain) that the gateway presents to Redis, or the PEM itself; read likewise"`
	RedisKey  Secret `env:"REDIS_KEY" doc:"PEM file with the private key to it, or the PEM itself"`
	KeyPrefix string `env:"KEY_PREFIX" envDefault:"sg" doc:"start of the name of every Redis key and channel: letters, digits and ._:-"`

	// Issuer is an absolute URL without a slash at its end, so that endpoint
	// URLs are made by appending a path.
	Issuer string `env:"ISSUER" envDefault:"http://localhost:8080" doc:"issuer identifier: the URL by which clients reach the gateway"`

	// Epoch has millisecond precision.
	Epoch          time.Time     `env:"EPOCH" envDefault:"2026-01-01T00:00:00Z" doc:"zero of the time in ids, RFC 3339; never change it once ids exist"`
	IDLayout       idgen.Layout  `env:"ID_LAYOUT" envDefault:"time:41,worker:10,sequence:12" doc:"fields of an id and their bits, high to low: time, datacenter, worker, rollback, sequence; at most 63 bits"`
	IDClock        string        `env:"ID_CLOCK" envDefault:"redis" doc:"what stamps ids: redis is Redis TIME, host the machine's clock"`
	IDRollback     string        `env:"ID_ROLLBACK" envDefault:"monotonic" doc:"what to do when the clock steps back: monotonic, wait, count, ring or fail"`
	IDRollbackWait time.Duration `env:"ID_ROLLBACK_WAIT" envDefault:"5ms" doc:"longest step back that wait and count sleep through"`
	IDRingSize     int           `env:"ID_RING_SIZE" envDefault:"200" doc:"slots of ring"`
	WorkerID       WorkerID      `env:"WORKER_ID" envDefault:"auto" doc:"worker number of the ids: auto, ipv4, lease, registry or a number"`
	DatacenterID   int64         `env:"DATACENTER_ID" envDefault:"0" doc:"datacenter number, when the layout has that field"`
	StateFile      string        `env:"STATE_FILE" doc:"file in which a gateway without Redis leases keeps how far its ids went"`

	TokenTTL    time.Duration `env:"TOKEN_TTL" envDefault:"1h" doc:"lifetime of a token, unless the client states its own"`
	TokenMaxTTL time.Duration `env:"TOKEN_MAX_TTL" envDefault:"24h" doc:"longest lifetime that a client may state"`
	// CacheTTL bounds how old the information behind a decision may be; 0 turns
	// the cache of tokens off, and then the bound is a second.
	CacheTTL  time.Duration `env:"CACHE_TTL" envDefault:"5s" doc:"no decision rests on information older than this, neither on a cached token nor on the revocation rules; 0 turns the token cache off and the bound is 1s"`
	CacheSize int           `env:"CACHE_SIZE" envDefault:"100000" doc:"validated tokens that are kept in memory, at most"`
	// FailStatic is how much longer cached tokens are served while Redis is away.
	FailStatic time.Duration `env:"FAIL_STATIC" envDefault:"0s" doc:"while Redis cannot be asked, tokens that are in the cache are served for this much longer, unless a known rule revokes them; 0 answers 503 instead"`

	StoreTimeout time.Duration `env:"STORE_TIMEOUT" envDefault:"250ms" doc:"time for one decision that needs Redis, all in all; at least twice the round trip to Redis"`

	// WaitReplicas and WaitTimeout are for revocations, and with WaitIssue for new tokens.
	WaitReplicas int           `env:"WAIT_REPLICAS" envDefault:"0" doc:"replicas of Redis that must have a revocation before it is acknowledged (WAIT); a failover to one of them cannot lose it, so set it to the number of replicas, in a cluster to that of each shard"`
	WaitIssue    bool          `env:"WAIT_ISSUE" envDefault:"false" doc:"wait for them before a new token is handed out, too: a token costs one round trip more, which it shares with no other"`
	WaitTimeout  time.Duration `env:"WAIT_TIMEOUT" envDefault:"100ms" doc:"how long to wait for them; after that the response is 503, and the revocation is made all the same"`

	// Package limit has further rules for rates.
	FailedAuthRate        Rate `env:"FAILED_AUTH_RATE" envDefault:"10/m" doc:"failed authentications for one client id that are answered as such, beyond it with 429; a correct secret always passes; off for no limit"`
	FailedAuthAddressRate Rate `env:"FAILED_AUTH_ADDRESS_RATE" envDefault:"60/m" doc:"the same for one address"`
	UnknownTokenRate      Rate `env:"UNKNOWN_TOKEN_RATE" envDefault:"200/4s" doc:"tokens from one address that are looked up and answered 401 because they are unknown, expired or revoked, beyond it with 429; a good token always passes; off for no limit"`

	TrustedProxies Prefixes `env:"TRUSTED_PROXIES" doc:"addresses and networks (CIDR), separated by commas, whose X-Forwarded-* headers are believed; none by default"`

	// TLSCert and TLSKey are set both or neither.
	TLSCert string `env:"TLS_CERT" doc:"PEM file with the certificate (chain) of the public listener; read again when it changes"`
	TLSKey  string `env:"TLS_KEY" doc:"PEM file with the private key to it"`
	// HSTS is sent with responses that go over TLS, also to a trusted proxy.
	HSTS HSTS `env:"HSTS" doc:"value of Strict-Transport-Security, such as max-age=31536000; includeSubDomains, which is sent with every response over TLS, of the gateway or of a trusted proxy in front; empty: not sent"`
	H2C  bool `env:"H2C" envDefault:"false" doc:"HTTP/2 without TLS on the public listener, for clients that know it beforehand"`

	// Transport is [TransportDirect] or [TransportStandard].
	Transport string `env:"TRANSPORT" envDefault:"direct" doc:"what sends requests to services that speak HTTP/1.1 without TLS, unless a route says otherwise: direct is the gateway's own, standard that of Go's net/http, slower, for settling a doubt"`

	Drain           time.Duration `env:"DRAIN" envDefault:"5s" doc:"how long a stopping gateway still accepts requests, so that load balancers notice"`
	ShutdownTimeout time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"25s" doc:"when a stopping gateway cuts what still runs, counted from the signal"`

	// DockerHost is empty if no routes are discovered.
	DockerHost        string `env:"DOCKER_HOST" doc:"Docker API from whose containers routes are discovered by their labels: unix:///var/run/docker.sock, or tcp://host:port of a proxy such as snowgate docker-proxy; empty: none are"`
	DockerAllowPublic bool   `env:"DOCKER_ALLOW_PUBLIC" envDefault:"false" doc:"whether the label snowgate.public may make a route public"`
	// DockerAllowPassToken is the same for the callers' tokens.
	DockerAllowPassToken bool `env:"DOCKER_ALLOW_PASS_TOKEN" envDefault:"false" doc:"whether the label snowgate.pass_token may have a service get the callers' tokens"`

	TokenKey Key `env:"TOKEN_KEY" doc:"key of the token tag, 32 bytes as base64, when it shall not be kept in Redis"`

	// AdminClientSecret has the form of a client secret.
	AdminClientSecret Secret `env:"ADMIN_CLIENT_SECRET" doc:"secret of the client admin with the scope snowgate:admin, in the form that snowgate client new prints; use ADMIN_CLIENT_SECRET_FILE"`

	LogLevel  string `env:"LOG_LEVEL" envDefault:"info" doc:"trace, debug, info, warn or error"`
	LogFormat string `env:"LOG_FORMAT" envDefault:"auto" doc:"json, console for people, or auto: console where standard error is a terminal, else json"`

	// File is the content of ConfigFile at the time of Load.
	File File `env:"-"`
}

// Load reads the configuration from environ, which has the form of
// [os.Environ], and from the files that it names. The error is of type
// [Faults] and lists everything that is wrong.
func Load(environ []string) (Config, error) {
	return load(environ, time.Now())
}

// load is Load at a given time.
func load(environ []string, now time.Time) (Config, error) {
	vars := newVariables(environ)
	var cfg Config
	vars.parse(&cfg)
	vars.check(&cfg, now)
	vars.checkUses(&cfg, now)
	faults := vars.faults
	if cfg.ConfigFile != "" && vars.sound("CONFIG") {
		rules := fileRules{now: now, subject: vars.shown(Prefix + "CONFIG")}
		if vars.sound("TOKEN_MAX_TTL") {
			rules.maxTTL = cfg.TokenMaxTTL
		}
		file, err := readFile(cfg.ConfigFile, rules)
		faults = append(faults, faultsOf(err)...)
		faults = append(faults, cfg.adminClash(file)...)
		cfg.File = file
	}
	if len(faults) > 0 {
		return Config{}, faults.sorted()
	}
	return cfg, nil
}

// parse turns what [readContent] has returned for ConfigFile into a File, with the same rules
// as [Load]. The error is of type [Faults].
func (c Config) parse(content []byte, err error) (File, error) {
	rules := fileRules{maxTTL: c.TokenMaxTTL, now: time.Now(), subject: quotePath(c.ConfigFile)}
	file, err := checkContent(c.ConfigFile, content, err, rules)
	if err != nil {
		return file, err
	}
	if faults := c.adminClash(file); len(faults) > 0 {
		return File{}, faults
	}
	return file, nil
}

// adminClash is a fault if both the file and ADMIN_CLIENT_SECRET make a client
// of the same name.
func (c Config) adminClash(file File) Faults {
	taken := slices.ContainsFunc(file.Clients, func(client clients.Client) bool { return client.ID == clients.AdminID })
	if !taken || !c.AdminClientSecret.IsSet() {
		return nil
	}
	return Faults{{
		Variable: Prefix + "ADMIN_CLIENT_SECRET",
		Message:  fmt.Sprintf("makes a client %q, and the configuration file has one, too", clients.AdminID),
	}}
}
