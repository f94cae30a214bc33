package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/caarlos0/env/v11"

	"snowgate/idgen"
)

const (
	fileSuffix = "_FILE"
	testPrefix = Prefix + "TEST_"

	// maxValueFile bounds what is read for a …_FILE variable.
	maxValueFile = 64 << 10
)

// variables is the environment while [Load] reads it.
type variables struct {
	values map[string]string // by full name; what is empty is absent
	files  map[string]string // path that the value of a name was read from
	empty  map[string]bool   // names that are set to nothing
	bad    map[string]bool   // names that have a fault
	faults Faults
}

// newVariables picks the gateway's variables from environ and reads the files
// that hold some of them. Of a name that occurs twice the first counts, as for
// [os.Getenv].
func newVariables(environ []string) *variables {
	v := &variables{
		values: map[string]string{}, files: map[string]string{},
		empty: map[string]bool{}, bad: map[string]bool{},
	}
	given := map[string]string{}
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if _, seen := given[name]; strings.HasPrefix(name, Prefix) && !seen {
			given[name] = value
		}
	}
	for _, known := range Variables() {
		v.take(known.Name, given)
	}
	v.refuseUnknown(given)
	return v
}

// take moves one variable from given to v, from its file if need be.
func (v *variables) take(name string, given map[string]string) {
	value, set := given[name]
	path := given[name+fileSuffix]
	delete(given, name)
	delete(given, name+fileSuffix)
	switch {
	case value != "" && path != "":
		v.fault(name, "is given twice, also as %s", name+fileSuffix)
	case value != "":
		v.values[name] = value
	case path != "":
		v.takeFile(name, path)
	default:
		v.empty[name] = set
	}
}

func (v *variables) takeFile(name, path string) {
	content, err := readValue(path)
	if err != nil {
		v.fault(name, "%s: %v", name+fileSuffix, err)
		return
	}
	v.values[name], v.files[name] = content, path
}

// readValue returns the content of a file less one line break at its end.
func readValue(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", quotePath(path), cause(err))
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxValueFile+1))
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read %s: %w", quotePath(path), cause(err))
	case len(content) > maxValueFile:
		return "", fmt.Errorf("%s is longer than %d bytes", quotePath(path), maxValueFile)
	case text == "":
		return "", fmt.Errorf("%s is empty", quotePath(path))
	}
	return text, nil
}

// Value returns the value of one variable of environ, by its full name, for commands that need no
// whole configuration: its own, or the content of the file that NAME_FILE names, and empty if
// neither is there. The error is of type [Faults] and names the variable.
func Value(environ []string, name string) (string, error) {
	given := map[string]string{}
	for _, line := range environ {
		key, value, _ := strings.Cut(line, "=")
		if _, seen := given[key]; !seen && (key == name || key == name+fileSuffix) {
			given[key] = value
		}
	}
	v := &variables{values: map[string]string{}, files: map[string]string{}, empty: map[string]bool{}, bad: map[string]bool{}}
	v.take(name, given)
	if len(v.faults) > 0 {
		return "", v.faults
	}
	return v.values[name], nil
}

// cause returns the reason in an error of package os without its path, which
// the caller words itself.
func cause(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// refuseUnknown makes a fault of each name in given that nobody took.
func (v *variables) refuseUnknown(given map[string]string) {
	var known []string // without prefix, lest all names look alike
	for _, k := range Variables() {
		name := strings.TrimPrefix(k.Name, Prefix)
		known = append(known, name, name+fileSuffix)
	}
	for name, value := range given {
		if strings.HasPrefix(name, testPrefix) || serviceLink(name, value) {
			continue
		}
		hint := suggestVariable(strings.TrimPrefix(name, Prefix), value, known)
		v.faults = append(v.faults, Fault{Variable: quoteName(name), Message: "unknown variable" + hint})
	}
}

// otherNames are names, without prefix, that other programs use for the same setting.
var otherNames = map[string]string{
	"PORT": "LISTEN", "ADDR": "LISTEN", "ADDRESS": "LISTEN", "HOST": "LISTEN", "BIND": "LISTEN", "HTTP_PORT": "LISTEN",
	"ADMIN_PORT": "ADMIN_LISTEN", "METRICS_LISTEN": "ADMIN_LISTEN", "METRICS_PORT": "ADMIN_LISTEN", "DEBUG": "LOG_LEVEL",
	"CONFIG_PATH": "CONFIG", "REDIS_HOST": "REDIS_URL", "REDIS_ADDR": "REDIS_URL", "REDIS_PASSWORD": "REDIS_URL",
	"ADMIN_SECRET": "ADMIN_CLIENT_SECRET", "DOCKER_SOCKET": "DOCKER_HOST", "URL": "ISSUER",
}

// suggestVariable returns a hint at the variable that may be meant by name, which has no prefix:
// one with a similar spelling, one that begins with name, or one that other programs call so.
func suggestVariable(name, value string, known []string) string {
	if hint := Suggest(name, Prefix, known); hint != "" {
		return hint
	}
	if other := otherNames[name]; other == "LISTEN" && isNumber(value) {
		return "; did you mean " + Prefix + "LISTEN=:" + value + "?"
	} else if other != "" {
		return "; did you mean " + Prefix + other + "?"
	}
	for _, one := range known {
		if name != "" && strings.HasPrefix(one, name+"_") {
			return "; did you mean " + Prefix + one + "?"
		}
	}
	return "; docs/reference/variables.md has all of them"
}

// quoteName returns name as it is if it is a usual one.
func quoteName(name string) string {
	if len(name) <= 64 && !looksSecret(name) && usualName().MatchString(name) {
		return name
	}
	return quote(name)
}

// pattern returns a regular expression that is compiled when it is first asked for, because few gateways have names
// that are looked at so closely.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

var (
	usualName   = pattern(`^[A-Za-z0-9_]+$`)
	serviceHost = pattern(`^SNOWGATE_([A-Z0-9_]+_)?SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$`)
	servicePort = pattern(`^SNOWGATE_([A-Z0-9_]+_)?PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
	portDetail  = pattern(`^SNOWGATE_([A-Z0-9_]+_)?PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$`)
	portValue   = pattern(`^(tcp|udp|sctp)://`)
)

// serviceLink reports whether a variable is one that Kubernetes (enableServiceLinks)
// or a Docker link makes for a service called "snowgate" or "snowgate-…".
// SNOWGATE_PORT is one only if its value is a URL such as tcp://10.0.0.1:8080:
// somebody who sets it to 8080 means another variable and is told so.
func serviceLink(name, value string) bool {
	return serviceHost().MatchString(name) || portDetail().MatchString(name) ||
		servicePort().MatchString(name) && portValue().MatchString(value)
}

// fault records what is wrong with the variable of that full name.
func (v *variables) fault(name, format string, args ...any) {
	v.bad[name] = true
	message := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	v.faults = append(v.faults, Fault{Variable: name, Message: message})
}

// sound reports whether none of the variables, named without prefix, has a
// fault so far, so that a rule about them can be checked.
func (v *variables) sound(names ...string) bool {
	for _, name := range names {
		if v.bad[Prefix+name] {
			return false
		}
	}
	return true
}

// parse puts the values into cfg.
func (v *variables) parse(cfg *Config) {
	err := env.ParseWithOptions(cfg, env.Options{
		Environment: v.values,
		Prefix:      Prefix,
		FuncMap: map[reflect.Type]env.ParserFunc{
			reflect.TypeFor[time.Duration](): parseDuration,
		},
	})
	var all env.AggregateError
	if errors.As(err, &all) {
		for _, err := range all.Errors {
			v.refuse(err)
		}
	}
	if v.empty[Prefix+"ADMIN_LISTEN"] {
		cfg.AdminListen = ""
	}
}

// refuse records an error of package env.
func (v *variables) refuse(err error) {
	var parse env.ParseError
	if !errors.As(err, &parse) {
		panic(fmt.Sprintf("config: the tags of Config are wrong: %v", err))
	}
	field, _ := reflect.TypeFor[Config]().FieldByName(parse.Name)
	name := Prefix + field.Tag.Get("env")
	reason := parse.Err.Error()
	switch field.Type {
	case reflect.TypeFor[time.Time]():
		reason = "is not an RFC 3339 time such as 2026-01-01T00:00:00Z"
	case reflect.TypeFor[bool]():
		reason = "is neither true nor false"
	case reflect.TypeFor[int](), reflect.TypeFor[int64]():
		reason = "is not a whole number, or too large"
	case reflect.TypeFor[idgen.Layout]():
		reason = "is not a layout: " + v.layoutReason(name, parse.Err)
	case reflect.TypeFor[Prefixes]():
		if _, fromFile := v.files[name]; fromFile { // the reason repeats a part
			reason = "is not a list of addresses and networks such as 10.0.0.0/8"
		}
	}
	v.fault(name, "%s %s", v.shown(name), reason)
}

// layoutReason words what idgen says, which repeats the value.
func (v *variables) layoutReason(name string, err error) string {
	const most = 300
	text := strings.TrimPrefix(err.Error(), idgen.ErrLayout.Error()+" ")
	if _, fromFile := v.files[name]; fromFile || looksSecret(text) || len(text) > most {
		return "it must read like time:41,worker:10,sequence:12"
	}
	return strings.TrimPrefix(text, fmt.Sprintf("%q: ", v.values[name]))
}

// shown returns the value of a variable for a fault. Secrets are not repeated,
// nor is what came from a file: that is where secrets are, and the wrong one may
// have been named.
func (v *variables) shown(name string) string {
	path, fromFile := v.files[name]
	switch {
	case fromFile:
		return "the content of " + quotePath(path)
	case secretVariable(name):
		return "the value"
	case name == Prefix+"CONFIG" || name == Prefix+"STATE_FILE":
		return quotePath(v.values[name])
	default:
		return quote(v.values[name])
	}
}

// parseDuration reads a duration as Go writes them.
func parseDuration(text string) (any, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, errors.New("is not a duration such as 250ms, 90s or 1h30m")
	}
	return d, nil
}
