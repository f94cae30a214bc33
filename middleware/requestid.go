package middleware

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
)

// maxRequestID limits the length of request ids of trusted proxies, in bytes.
const maxRequestID = 128

// requestID returns the id of r: that of a trusted proxy if it is fit for logs and headers,
// otherwise 128 random bits in hexadecimal.
func requestID(r *http.Request, trusted bool) string {
	if trusted && isNamed(r) {
		return r.Header["X-Request-Id"][0]
	}
	// A request id is not secret, so the generator of the runtime suffices, which the system seeds.
	var bits [16]byte
	binary.NativeEndian.PutUint64(bits[:8], rand.Uint64()) //nolint:gosec // see above
	binary.NativeEndian.PutUint64(bits[8:], rand.Uint64()) //nolint:gosec // see above
	var digits [32]byte
	hex.Encode(digits[:], bits[:])
	return string(digits[:])
}

// isNamed reports whether r has exactly one request id that is fit for logs and headers.
func isNamed(r *http.Request) bool {
	names := r.Header["X-Request-Id"]
	return len(names) == 1 && isRequestID(names[0])
}

func isRequestID(name string) bool {
	for i := range len(name) {
		if !isAlphanumeric(name[i]) && name[i] != '-' && name[i] != '_' && name[i] != '.' {
			return false
		}
	}
	return name != "" && len(name) <= maxRequestID
}

func isTrusted(proxies []netip.Prefix, peer netip.Addr) bool {
	for _, proxy := range proxies {
		if proxy.Contains(peer.WithZone("")) {
			return true
		}
	}
	return false
}
