package config

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"snowgate/clients"
	"snowgate/idgen"
)

// Values of SNOWGATE_ID_CLOCK.
const (
	ClockRedis = "redis"
	ClockHost  = "host"
)

// check is one rule about the variables.
type check struct {
	// name is the variable that a fault is about, and with the others it is
	// what the rule looks at: it is checked only if all of them could be read.
	name   string
	others []string
	// reason says what is wrong, as the end of a sentence whose subject is the
	// value, or nothing if all is well.
	reason func(c *Config, now time.Time) string
}

// checks is every rule that a single value cannot check by itself.
var checks = []check{
	{"LISTEN", nil, func(c *Config, _ time.Time) string { return checkAddress(c.Listen) }},
	{"ADMIN_LISTEN", nil, func(c *Config, _ time.Time) string {
		if c.AdminListen == "" {
			return ""
		}
		return checkAddress(c.AdminListen)
	}},
	{"ADMIN_LISTEN", []string{"LISTEN"}, checkListeners},
	{"CONFIG", nil, checkConfigFile},
	{"REDIS_URL", nil, func(c *Config, _ time.Time) string { return checkRedisURL(c.RedisURL.Reveal()) }},
	{"KEY_PREFIX", nil, checkKeyPrefix},
	{"ISSUER", nil, func(c *Config, _ time.Time) string { return checkIssuer(c.Issuer) }},
	{"EPOCH", nil, checkEpoch},
	{"ID_CLOCK", nil, func(c *Config, _ time.Time) string { return oneOf(c.IDClock, ClockRedis, ClockHost) }},
	{"ID_ROLLBACK", nil, func(c *Config, _ time.Time) string {
		return oneOf(c.IDRollback, "monotonic", "wait", "count", "ring", "fail")
	}},
	{"ID_ROLLBACK", []string{"ID_LAYOUT"}, checkRollbackField},
	{"ID_ROLLBACK_WAIT", nil, func(c *Config, _ time.Time) string { return notNegative(c.IDRollbackWait) }},
	{"ID_RING_SIZE", nil, checkRingSize},
	{"ID_RING_SIZE", []string{"ID_ROLLBACK"}, func(c *Config, _ time.Time) string {
		if c.IDRollback == "ring" && c.IDRingSize == 1 {
			return "is too small for " + Prefix + "ID_ROLLBACK=ring, which needs 2 slots at least"
		}
		return ""
	}},
	{"WORKER_ID", []string{"ID_LAYOUT"}, checkWorker},
	{"DATACENTER_ID", []string{"ID_LAYOUT"}, checkDatacenter},
	{"REDIS_CA", []string{"REDIS_URL"}, checkRedisTLS(func(c *Config) string { return c.RedisCA }, checkRedisCA)},
	{"REDIS_CA", []string{"REDIS_URL"}, func(c *Config, _ time.Time) string {
		if c.RedisCA != "" && c.SkipsVerification() {
			return "has no use while the URL says skip_verify=true; leave that out"
		}
		return ""
	}},
	{"REDIS_CERT", []string{"REDIS_URL", "REDIS_KEY"}, checkRedisTLS(func(c *Config) string { return c.RedisCert }, checkRedisCert)},
	{"REDIS_KEY", []string{"REDIS_URL", "REDIS_CERT"}, checkRedisTLS(func(c *Config) string { return c.RedisKey.Reveal() }, checkRedisKey)},
	{"STATE_FILE", []string{"REDIS_URL"}, checkStateFile},
	{"TOKEN_TTL", nil, func(c *Config, _ time.Time) string { return checkTTL(c.TokenTTL) }},
	{"TOKEN_MAX_TTL", nil, func(c *Config, _ time.Time) string { return checkTTL(c.TokenMaxTTL) }},
	{"TOKEN_TTL", []string{"TOKEN_MAX_TTL"}, func(c *Config, _ time.Time) string {
		if c.TokenTTL > c.TokenMaxTTL {
			return fmt.Sprintf("is longer than %sTOKEN_MAX_TTL, %s", Prefix, c.TokenMaxTTL)
		}
		return ""
	}},
	{"CACHE_TTL", nil, func(c *Config, _ time.Time) string { return checkCacheTTL(c.CacheTTL) }},
	{"CACHE_SIZE", nil, func(c *Config, _ time.Time) string { return checkCacheSize(c.CacheSize) }},
	{"FAIL_STATIC", nil, func(c *Config, _ time.Time) string { return notNegative(c.FailStatic) }},
	{"FAIL_STATIC", []string{"CACHE_TTL"}, func(c *Config, _ time.Time) string {
		if c.FailStatic > 0 && c.CacheTTL == 0 {
			return "has nothing to serve: " + Prefix + "CACHE_TTL=0 turns the token cache off"
		}
		return ""
	}},
	{"STORE_TIMEOUT", nil, func(c *Config, _ time.Time) string { return positive(c.StoreTimeout) }},
	{"WAIT_REPLICAS", []string{"REDIS_URL"}, func(c *Config, _ time.Time) string {
		switch {
		case c.WaitReplicas < 0:
			return "is a negative number"
		case c.WaitReplicas > 0 && !c.RedisURL.IsSet():
			return "needs " + Prefix + "REDIS_URL: the embedded Redis has no replicas"
		}
		return ""
	}},
	{"WAIT_TIMEOUT", nil, func(c *Config, _ time.Time) string { return positive(c.WaitTimeout) }},
	{"DOCKER_HOST", nil, func(c *Config, _ time.Time) string { return checkDockerHost(c.DockerHost) }},
	{"DOCKER_ALLOW_PUBLIC", []string{"DOCKER_HOST"}, func(c *Config, _ time.Time) string {
		if c.DockerAllowPublic && c.DockerHost == "" {
			return "has no use without " + Prefix + "DOCKER_HOST"
		}
		return ""
	}},
	{"DOCKER_ALLOW_PASS_TOKEN", []string{"DOCKER_HOST"}, func(c *Config, _ time.Time) string {
		if c.DockerAllowPassToken && c.DockerHost == "" {
			return "has no use without " + Prefix + "DOCKER_HOST"
		}
		return ""
	}},
	{"ADMIN_CLIENT_SECRET", nil, checkAdminSecret},
	{"TLS_CERT", []string{"TLS_KEY"}, checkCertificate},
	{"TLS_KEY", []string{"TLS_CERT"}, func(c *Config, _ time.Time) string {
		if c.TLSKey != "" && c.TLSCert == "" {
			return "has no use without " + Prefix + "TLS_CERT"
		}
		return ""
	}},
	{"HSTS", []string{"TLS_CERT", "TRUSTED_PROXIES"}, checkHSTS},
	{"H2C", []string{"TLS_CERT"}, func(c *Config, _ time.Time) string {
		if c.H2C && c.TLSCert != "" {
			return "has no use beside " + Prefix + "TLS_CERT: HTTP/2 is offered over TLS then"
		}
		return ""
	}},
	{"DRAIN", nil, func(c *Config, _ time.Time) string { return notNegative(c.Drain) }},
	{"SHUTDOWN_TIMEOUT", nil, func(c *Config, _ time.Time) string { return positive(c.ShutdownTimeout) }},
	{"DRAIN", []string{"SHUTDOWN_TIMEOUT"}, func(c *Config, _ time.Time) string {
		if c.Drain >= c.ShutdownTimeout {
			return fmt.Sprintf("is not shorter than %sSHUTDOWN_TIMEOUT, %s", Prefix, c.ShutdownTimeout)
		}
		return ""
	}},
	{"LOG_LEVEL", nil, func(c *Config, _ time.Time) string {
		return oneOf(c.LogLevel, "trace", "debug", "info", "warn", "error")
	}},
	{"TRANSPORT", nil, func(c *Config, _ time.Time) string { return oneOf(c.Transport, TransportDirect, TransportStandard) }},
	{"LOG_FORMAT", nil, func(c *Config, _ time.Time) string { return oneOf(c.LogFormat, "auto", "json", "console") }},
}

// uses is every rule about variables that only others give a use. A value without a use is a
// mistake if it was given; a default is not.
var uses = []check{
	{"ID_ROLLBACK_WAIT", []string{"ID_ROLLBACK"}, func(c *Config, _ time.Time) string {
		return unless(c.IDRollback == "wait" || c.IDRollback == "count", "with "+Prefix+"ID_ROLLBACK=wait and count")
	}},
	{"ID_RING_SIZE", []string{"ID_ROLLBACK"}, func(c *Config, _ time.Time) string {
		return unless(c.IDRollback == "ring", "with "+Prefix+"ID_ROLLBACK=ring")
	}},
	{"DATACENTER_ID", []string{"ID_LAYOUT"}, func(c *Config, _ time.Time) string {
		return unless(c.IDLayout.Bits(idgen.FieldDatacenter) > 0, "with a datacenter field in "+Prefix+"ID_LAYOUT, "+c.IDLayout.String())
	}},
	{"DATACENTER_ID", []string{"WORKER_ID"}, func(c *Config, _ time.Time) string {
		return unless(c.WorkerID.Source != WorkerRegistry, "beside another "+Prefix+"WORKER_ID than registry, which gives the datacenter number, too")
	}},
	{"CACHE_SIZE", []string{"CACHE_TTL"}, func(c *Config, _ time.Time) string {
		return unless(c.CacheTTL > 0, "with a token cache, and "+Prefix+"CACHE_TTL=0 turns it off")
	}},
	{"WAIT_ISSUE", []string{"WAIT_REPLICAS"}, func(c *Config, _ time.Time) string {
		return unless(c.WaitReplicas > 0, "with "+Prefix+"WAIT_REPLICAS")
	}},
	{"WAIT_TIMEOUT", []string{"WAIT_REPLICAS"}, func(c *Config, _ time.Time) string {
		return unless(c.WaitReplicas > 0, "with "+Prefix+"WAIT_REPLICAS")
	}},
}

// unless returns the fault of a variable that has its use only under a condition, if that does not
// hold.
func unless(used bool, condition string) string {
	if used {
		return ""
	}
	return "has a use only " + condition + "; leave it out"
}

// checkUses records a fault for each variable that was given and has no use.
func (v *variables) checkUses(cfg *Config, now time.Time) {
	for _, rule := range uses {
		name := Prefix + rule.name
		if _, given := v.values[name]; !given || !v.sound(rule.name) || !v.sound(rule.others...) {
			continue
		}
		if reason := rule.reason(cfg, now); reason != "" {
			v.fault(name, "%s %s", v.shown(name), reason)
		}
	}
}

// check records a fault for each rule that cfg breaks. A default that breaks a
// rule because of another variable is named as such.
func (v *variables) check(cfg *Config, now time.Time) {
	for _, rule := range checks {
		if !v.sound(rule.name) || !v.sound(rule.others...) {
			continue
		}
		reason := rule.reason(cfg, now)
		if reason == "" {
			continue
		}
		name := Prefix + rule.name
		if _, set := v.values[name]; !set {
			v.fault(name, "the default %s", reason)
			continue
		}
		v.fault(name, "%s %s", v.shown(name), reason)
	}
}

func positive(d time.Duration) string {
	if d <= 0 {
		return "is not a positive duration"
	}
	return ""
}

func notNegative(d time.Duration) string {
	if d < 0 {
		return "is a negative duration"
	}
	return ""
}

// checkTTL asks for a second at least: expires_in (RFC 6749 §5.1) counts in
// seconds, and 0 would be a token that was never good.
func checkTTL(d time.Duration) string {
	if d < time.Second {
		return "is shorter than a second"
	}
	return ""
}

// checkCacheTTL refuses a bound under a second: the revocation rules are confirmed only once a
// second.
func checkCacheTTL(d time.Duration) string {
	switch {
	case d < 0:
		return notNegative(d)
	case d > 0 && d < time.Second:
		return "is shorter than a second; 0 turns the token cache off"
	case d > time.Hour:
		return "is longer than an hour"
	}
	return ""
}

func checkCacheSize(n int) string {
	const most = 10_000_000 // some gigabytes
	if n < 1 || n > most {
		return fmt.Sprintf("is not a number from 1 to %d; %sCACHE_TTL=0 turns the token cache off", most, Prefix)
	}
	return ""
}

// checkAdminSecret finds what is not a client secret, or a damaged one, without
// repeating it.
func checkAdminSecret(c *Config, _ time.Time) string {
	if !c.AdminClientSecret.IsSet() {
		return ""
	}
	if err := clients.CheckSecret(c.AdminClientSecret.Reveal()); err != nil {
		reason := strings.TrimPrefix(err.Error(), clients.ErrSecretFormat.Error()+": ")
		return "is not a client secret: " + reason + " (snowgate client new makes one)"
	}
	return ""
}

// checkCertificate reads the pair, so that a wrong one is found before the
// listener opens.
func checkCertificate(c *Config, _ time.Time) string {
	switch {
	case c.TLSCert == "":
		return ""
	case c.TLSKey == "":
		return "needs " + Prefix + "TLS_KEY, too"
	}
	if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
		return "is not usable with " + Prefix + "TLS_KEY: " + err.Error()
	}
	return ""
}

func oneOf(value string, all ...string) string {
	if slices.Contains(all, value) {
		return ""
	}
	return "is none of " + strings.Join(all, ", ") + Suggest(value, "", all)
}

// checkAddress asks for host:port with a port number; 0 lets the system choose.
func checkAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsAny(host, " /@") {
		return "is not an address such as :8080 or 127.0.0.1:8080"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "does not end in a port number"
	}
	return ""
}

func checkListeners(c *Config, _ time.Time) string {
	if c.AdminListen != "" && c.AdminListen == c.Listen && !strings.HasSuffix(c.Listen, ":0") {
		return "is also " + Prefix + "LISTEN; the admin listener needs an address of its own"
	}
	return ""
}

// checkConfigFile notices when CONFIG and CONFIG_FILE were mixed up.
func checkConfigFile(c *Config, _ time.Time) string {
	if strings.ContainsAny(c.ConfigFile, "\n\x00") {
		return "is not a path; to name the YAML file itself use " + Prefix + "CONFIG without _FILE"
	}
	return ""
}

// checkRedisURL checks the form only: package redisstore, which opens the connection, checks the
// parameters. It never repeats anything of text.
func checkRedisURL(text string) string {
	if text == "" {
		return ""
	}
	shape := "is not a URL such as redis://host:6379/0, rediss://host:6379 or unix:///run/redis.sock"
	u, err := url.Parse(text)
	if err != nil || strings.Count(text, "@") > strings.Count(u.Host, "@") && u.User == nil || strings.Contains(text, "#") {
		if _, rest, _ := strings.Cut(text, "://"); strings.Contains(rest, "@") {
			shape += "; in a user name or password, percent-encode every character but letters, digits and -._~ (/ is %2F, # is %23, ? is %3F, % is %25)"
		}
		return shape
	}
	switch u.Scheme {
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		// Further hosts of a cluster are addr parameters, not a list.
		if !validPort(u) || u.Opaque != "" || strings.Contains(text, "#") || strings.Contains(u.Host, ",") {
			return shape
		}
		if db := strings.TrimPrefix(u.Path, "/"); db != "" && !isNumber(db) {
			return "names a database that is no number; write " + u.Scheme + "://" + u.Host + "/0"
		}
	case "unix":
		if u.Path == "" || u.Host != "" {
			return shape
		}
	default:
		return shape
	}
	return ""
}

func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 31)
	return err == nil
}

var keyPrefix = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?$`)

// checkKeyPrefix lets colons through, because prod:sg is how people divide a
// Redis, but no braces, which would decide about Cluster slots, and nothing
// that is a pattern.
func checkKeyPrefix(c *Config, _ time.Time) string {
	if !keyPrefix.MatchString(c.KeyPrefix) || len(c.KeyPrefix) > 64 {
		return "is not 1 to 64 letters, digits and ._:- that start and end with a letter or digit"
	}
	return ""
}

// checkIssuer follows RFC 8414 §2, except that it allows http, for use behind
// a proxy on one host and for trying out.
func checkIssuer(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || !validPort(u) || u.Opaque != "":
		return "is not an absolute http or https URL"
	case u.User != nil:
		return "holds a user name or password"
	case strings.ContainsAny(text, "?#"):
		return "has a query or a fragment"
	case strings.HasSuffix(text, "/"):
		return "ends in a slash"
	case u.String() != text:
		return "is written in another way than " + quote(u.String())
	}
	return ""
}

// validPort reports whether u names a host, and a port in range or none.
func validPort(u *url.URL) bool {
	if u.Hostname() == "" || strings.HasSuffix(u.Host, ":") {
		return false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && port > 0
}

func checkEpoch(c *Config, now time.Time) string {
	switch {
	case c.Epoch.Nanosecond()%int(time.Millisecond) != 0:
		return "is not a whole millisecond"
	case c.Epoch.After(now):
		return "is in the future"
	}
	return ""
}

func checkStateFile(c *Config, _ time.Time) string {
	switch {
	case c.StateFile == "":
		return ""
	case c.RedisURL.IsSet():
		return "has no use beside " + Prefix + "REDIS_URL: how far ids went is kept in Redis then"
	case c.WorkerID.Source == WorkerLease || c.WorkerID.Source == WorkerRegistry:
		return "does not go with " + Prefix + "WORKER_ID=" + c.WorkerID.String()
	}
	return ""
}

func checkRollbackField(c *Config, _ time.Time) string {
	if c.IDRollback == "count" && c.IDLayout.Bits(idgen.FieldRollback) == 0 {
		return "needs a rollback field in " + Prefix + "ID_LAYOUT, " + c.IDLayout.String()
	}
	return ""
}

func checkRingSize(c *Config, _ time.Time) string {
	const most = 1 << 16 // slots of 8 bytes; at one per millisecond a minute
	if c.IDRingSize < 1 || c.IDRingSize > most {
		return fmt.Sprintf("is not a number from 1 to %d", most)
	}
	return ""
}

func checkWorker(c *Config, _ time.Time) string {
	if largest := c.IDLayout.Max(idgen.FieldWorker); c.WorkerID.Number > largest {
		return fmt.Sprintf("does not fit the worker field of %sID_LAYOUT; the largest is %d", Prefix, largest)
	}
	return ""
}

func checkDatacenter(c *Config, _ time.Time) string {
	if largest := c.IDLayout.Max(idgen.FieldDatacenter); c.DatacenterID < 0 || c.DatacenterID > largest {
		return fmt.Sprintf("does not fit the datacenter field of %sID_LAYOUT; the largest is %d", Prefix, largest)
	}
	return ""
}
