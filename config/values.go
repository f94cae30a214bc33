package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"snowgate/limit"
)

const redacted = "[redacted]"

// Secret is a text that shows as [redacted] however it is printed or encoded.
// The only way to the text is Reveal. The zero value is no secret and shows as
// nothing.
type Secret struct{ text string }

// Reveal returns the text itself.
func (s Secret) Reveal() string { return s.text }

// IsSet reports whether there is a text.
func (s Secret) IsSet() bool { return s.text != "" }

// String returns [redacted], or nothing for the zero value.
func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return redacted
}

// Format prints what String returns for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns what String returns; JSON, YAML and structured logs go
// through it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes text as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	s.text = string(text)
	return nil
}

// Key is a key of 32 bytes. Like a [Secret] it shows as [redacted]. The zero
// value is no key.
type Key struct{ secret Secret }

// Bytes returns a copy of the key, nil if there is none.
func (k Key) Bytes() []byte {
	if !k.IsSet() {
		return nil
	}
	return []byte(k.secret.text)
}

// IsSet reports whether there is a key.
func (k Key) IsSet() bool { return k.secret.IsSet() }

// String returns [redacted], or nothing for the zero value.
func (k Key) String() string { return k.secret.String() }

// Format prints what String returns for every verb and flag.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText returns what String returns.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads 32 bytes of standard base64 with padding (RFC 4648 §4).
func (k *Key) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.Strict().DecodeString(string(text))
	switch {
	case err != nil:
		// The decoder's own error would do, but this is no place for surprises.
		return errors.New("is not standard base64 with padding (openssl rand -base64 32 makes a key)")
	case len(raw) != 32:
		return fmt.Errorf("holds %d bytes instead of 32 (openssl rand -base64 32 makes a key)", len(raw))
	case strings.Count(string(raw), string(raw[:1])) == len(raw):
		return errors.New("is one byte 32 times over, not a key (openssl rand -base64 32 makes one)")
	}
	k.secret.text = string(raw)
	return nil
}

// WorkerSource says where the worker number of the ids comes from.
type WorkerSource string

// The sources of a worker number.
const (
	WorkerAuto     WorkerSource = "auto"     // octet of the address, or a free number
	WorkerIPv4     WorkerSource = "ipv4"     // octet of the address, or refuse to start
	WorkerLease    WorkerSource = "lease"    // leased in Redis
	WorkerRegistry WorkerSource = "registry" // counted up in Redis and remembered by address
	WorkerFixed    WorkerSource = "number"   // stated
)

// WorkerID is the value of SNOWGATE_WORKER_ID.
type WorkerID struct {
	Source WorkerSource
	// Number is the stated number if Source is WorkerFixed.
	Number int64
}

// String returns the text that UnmarshalText reads.
func (w WorkerID) String() string {
	if w.Source == WorkerFixed {
		return strconv.FormatInt(w.Number, 10)
	}
	return string(w.Source)
}

// MarshalText returns what String returns.
func (w WorkerID) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads auto, ipv4, lease, registry or a number from 0 up.
func (w *WorkerID) UnmarshalText(text []byte) error {
	switch source := WorkerSource(text); source {
	case WorkerAuto, WorkerIPv4, WorkerLease, WorkerRegistry:
		*w = WorkerID{Source: source}
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil {
		return errors.New("is none of auto, ipv4, lease, registry and no number from 0 up")
	}
	*w = WorkerID{Source: WorkerFixed, Number: int64(n)}
	return nil
}

// Rate is a rate, or "off".
type Rate struct{ limit.Rate }

// String returns the text that UnmarshalText reads.
func (r Rate) String() string {
	if r.IsZero() {
		return "off"
	}
	return r.Rate.String()
}

// MarshalText returns what String returns.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a rate such as 100/s, 600/m or 200/4s, or "off".
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		r.Rate = limit.Rate{}
		return nil
	}
	rate, err := limit.ParseRate(string(text))
	if err != nil {
		return errors.New("is no limit: " + err.Error() + ", or off")
	}
	r.Rate = rate
	return nil
}

// Prefixes is a list of networks.
type Prefixes []netip.Prefix

// Contains reports whether ip is in one of the networks. An IPv4 address
// written in IPv6 form counts as the IPv4 address.
func (ps Prefixes) Contains(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, p := range ps {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// String returns the text that UnmarshalText reads.
func (ps Prefixes) String() string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.String()
	}
	return strings.Join(texts, ",")
}

// MarshalText returns what String returns.
func (ps Prefixes) MarshalText() ([]byte, error) { return []byte(ps.String()), nil }

// UnmarshalText reads addresses and networks separated by commas. Spaces around
// them do not count.
func (ps *Prefixes) UnmarshalText(text []byte) error {
	var list Prefixes
	for part := range strings.SplitSeq(string(text), ",") {
		p, err := parsePrefix(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	*ps = list
	return nil
}

// parsePrefix reads one network, or an address as the network of itself.
func parsePrefix(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("has %s, which is no address and no network such as 10.0.0.0/8", quote(text))
	case p.Addr().Is4In6():
		return p, fmt.Errorf("has %s; write the network in IPv4 form", quote(text))
	case p != p.Masked():
		return p, fmt.Errorf("has %s, which is an address inside a network; the network is %s", quote(text), p.Masked())
	}
	return p, nil
}
