package config

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// HSTS is a value of the field Strict-Transport-Security (RFC 6797 §6.1) with
// its directives in the usual spelling; empty for none.
type HSTS string

// The least max-age that the preload lists of browsers take.
const leastPreloadAge = 365 * 24 * 60 * 60

var errHSTS = errors.New("is no value of Strict-Transport-Security such as max-age=31536000; includeSubDomains")

// MarshalText returns the value.
func (h HSTS) MarshalText() ([]byte, error) { return []byte(h), nil }

// UnmarshalText reads max-age and, if they are there, includeSubDomains and preload, each once and
// in any order and case. It refuses values that browsers would ignore. A max-age of 0 tells
// browsers to forget what they were told before.
func (h *HSTS) UnmarshalText(text []byte) error {
	seen := map[string]bool{}
	var age uint64
	for part := range strings.SplitSeq(string(text), ";") {
		name, value, given := strings.Cut(strings.Trim(part, " \t"), "=")
		name = strings.ToLower(name)
		if seen[name] {
			return errors.New("has a directive twice")
		}
		seen[name] = true
		switch name {
		case "max-age":
			var err error
			if age, err = strconv.ParseUint(value, 10, 31); err != nil || value[0] == '+' {
				return errors.New("has a max-age that is not a number of seconds")
			}
		case "includesubdomains", "preload":
			if given {
				return errHSTS
			}
		default:
			return errHSTS
		}
	}
	switch {
	case !seen["max-age"]:
		return errHSTS
	case seen["preload"] && (!seen["includesubdomains"] || age < leastPreloadAge):
		return errors.New("has preload, for which browsers want includeSubDomains and a max-age of a year, " + strconv.Itoa(leastPreloadAge))
	}
	*h = hsts(age, seen["includesubdomains"], seen["preload"])
	return nil
}

func hsts(age uint64, subdomains, preload bool) HSTS {
	value := "max-age=" + strconv.FormatUint(age, 10)
	if subdomains {
		value += "; includeSubDomains"
	}
	if preload {
		value += "; preload"
	}
	return HSTS(value)
}

// checkHSTS refuses the field where it would never be sent: without TLS
// (RFC 6797 §7.2), here or at a proxy that is believed.
func checkHSTS(c *Config, _ time.Time) string {
	if c.HSTS != "" && c.TLSCert == "" && len(c.TrustedProxies) == 0 {
		return "is never sent without TLS: it needs " + Prefix + "TLS_CERT, or " + Prefix + "TRUSTED_PROXIES of which one speaks TLS"
	}
	return ""
}
