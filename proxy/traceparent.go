package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"

	"snowgate/proxy/http1"
)

const traceparentSize = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// isTraceparent reports whether value is a traceparent as W3C Trace Context §3.2
// defines it: version 00, or a later one that begins like it.
func isTraceparent(value string) bool {
	const size = traceparentSize
	if len(value) < size || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return false
	}
	version, trace, parent, flags := value[:2], value[3:35], value[36:52], value[53:size]
	switch {
	case !isLowerHex(version) || !isLowerHex(trace) || !isLowerHex(parent) || !isLowerHex(flags):
		return false
	case version == "ff" || isZero(trace) || isZero(parent):
		return false
	case version == "00":
		return len(value) == size
	default:
		return len(value) == size || value[size] == '-'
	}
}

func isZero(digits string) bool { return strings.Trim(digits, "0") == "" }

func isLowerHex(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// continuesTrace reports whether the client has sent a valid traceparent.
func continuesTrace(in http.Header) bool {
	sent := in[headerTraceparent]
	return len(sent) == 1 && isTraceparent(sent[0])
}

// appendTrace appends the traceparent of the client if it is valid, and begins a trace otherwise. A
// new trace has the id of the request, so that a log line leads to it, and is marked as sampled:
// the services decide whether to record.
func appendTrace(list []http1.Field, in http.Header, requestID string) []http1.Field {
	if continuesTrace(in) {
		return append(list, http1.Field{Name: headerTraceparent, Value: in[headerTraceparent][0]})
	}
	return append(list, http1.Field{Name: headerTraceparent, Value: newTrace(requestID)})
}

// newTrace returns a traceparent that begins a trace. Its ids are no secrets, so the generator of
// the runtime is enough.
func newTrace(requestID string) string {
	text := append(make([]byte, 0, traceparentSize), "00-"...)
	if len(requestID) == 32 && isLowerHex(requestID) && !isZero(requestID) {
		text = append(text, requestID...)
	} else {
		text = appendName(appendName(text))
	}
	text = appendName(append(text, '-'))
	return string(append(text, "-01"...))
}

// appendName appends 64 random bits, which are not all zero, in hexadecimal.
func appendName(text []byte) []byte {
	bits := binary.NativeEndian.AppendUint64(make([]byte, 0, 8), max(rand.Uint64(), 1)) //nolint:gosec // see newTrace
	return hex.AppendEncode(text, bits)
}
