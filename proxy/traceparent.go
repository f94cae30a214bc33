package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// isTraceparent reports whether value is a traceparent as W3C Trace Context §3.2
// defines it: version 00, or a later one that begins like it.
func isTraceparent(value string) bool {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
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

// setTrace leaves a valid traceparent of the client in out, with its tracestate,
// or else begins a trace there. A new trace is named like the request, so that
// a log line leads to it, and is marked as sampled: whether to record is left
// to the services.
func setTrace(out, in http.Header, requestID string) {
	if sent := in[headerTraceparent]; len(sent) == 1 && isTraceparent(sent[0]) {
		out[headerTraceparent] = sent
		return
	}
	delete(out, headerTracestate)
	var random [24]byte
	_, _ = rand.Read(random[:]) // since Go 1.24 it never returns an error
	trace := requestID
	if len(trace) != 32 || !isLowerHex(trace) || isZero(trace) {
		trace = hex.EncodeToString(random[:16])
	}
	out[headerTraceparent] = []string{"00-" + trace + "-" + hex.EncodeToString(random[16:]) + "-01"}
}
