package proxy_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/lineartest"
)

// headOf returns the head of a request of about size bytes, in which filler repeats piece.
func headOf(before, piece, after string, size int) string {
	return before + strings.Repeat(piece, max(1, (size-len(before)-len(after))/len(piece))) + after
}

// distinct returns count pieces that differ, about size bytes in all.
func distinct(format string, size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// worstHeads are heads that make somebody work who looks at them before a token was accepted. Each
// is made of the size that is wanted.
func worstHeads() map[string]func(size int) string {
	const line, end = "GET /svc/x HTTP/1.1\r\nHost: h\r\n", "\r\n\r\n"
	repeated := func(before, piece, after string) func(int) string {
		return func(size int) string { return headOf(before, piece, after, size) }
	}
	numbered := func(before, format, after string) func(int) string {
		return func(size int) string { return before + distinct(format, size-len(before)-len(after)) + after }
	}
	heads := map[string]func(int) string{
		"segments of a path":        repeated("GET ", "/a", " HTTP/1.1\r\nHost: h"+end),
		"encoded bytes of a path":   repeated("GET /", "%C3%A4", " HTTP/1.1\r\nHost: h"+end),
		"dots of a path":            repeated("GET /", "..;/", " HTTP/1.1\r\nHost: h"+end),
		"parameters of a query":     repeated("GET /x?", "a=b&", " HTTP/1.1\r\nHost: h"+end),
		"tokens in a query":         repeated("GET /x?", "access_token=&", " HTTP/1.1\r\nHost: h"+end),
		"tokens in User-Agent":      repeated(line+"User-Agent: ", "access_token=a&", end),
		"prefixes in User-Agent":    repeated(line+"User-Agent: ", "sgt_", end),
		"encoded User-Agent":        repeated(line+"User-Agent: ", "%41", end),
		"fields":                    numbered(line, "X-%d: a\r\n", "\r\n"),
		"fields of one name":        repeated(line, "X-A: a\r\n", "\r\n"),
		"shortest fields":           numbered(line, "%x:\r\n", "\r\n"),
		"shortest fields, one name": repeated(line, "a:\r\n", "\r\n"),
		"forged identity":           repeated(line, "X_Snowgate_Client: a\r\n", "\r\n"),
		"options of Connection":     numbered(line+"Connection: ", "x%d,", end),
		"lines of Connection":       numbered(line, "Connection: x%d\r\n", "\r\n"),
		"words of Authorization":    numbered(line+"Authorization: ", "abcdefgh%d ", end),
		"one word of Authorization": repeated(line+"Authorization: ", "redacted ", end),
		"lines of Authorization":    numbered(line, "Authorization: Bearer abcdefgh%d\r\n", "\r\n"),
		"a long bearer token":       repeated(line+"Authorization: Bearer sgt_", "a", end),
		"Basic":                     repeated(line+"Authorization: Basic ", "YWJj", end),
		"cookies":                   numbered(line+"Cookie: ", "c%d=v; ", end),
		"forwarded addresses":       repeated(line+"X-Forwarded-For: ", "192.0.2.1, ", end),
		"Forwarded":                 repeated(line+"Forwarded: ", "for=192.0.2.1;by=a, ", end),
		"hosts":                     repeated("GET / HTTP/1.1\r\nHost: ", "a.", "b"+end),
		"traceparent":               repeated(line+"Traceparent: ", "00-", end),
		"tracestate":                numbered(line+"Tracestate: ", "k%d=v,", end),
		"ranges":                    repeated(line+"Range: bytes=", "0-1,", end),
		"Accept":                    repeated(line+"Accept: ", "text/html;q=0.1, ", end),
		"upgrades":                  repeated(line+"Connection: Upgrade\r\nUpgrade: ", "websocket, ", end),
		"Expect":                    repeated(line+"Expect: ", "100-continue, ", end),
		"codings":                   repeated(line+"Te: ", "trailers, ", end),
		"headers of a preflight":    numbered("OPTIONS /svc HTTP/1.1\r\nHost: h\r\nOrigin: https://a\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: ", "x-%d,", end),
		"words and what is shown": func(size int) string {
			return headOf(line+"Authorization: abcdefgh ijklmnop\r\nUser-Agent: ", "abcdefgh ijklmnop ", end, size)
		},
		"options beside as many names": func(size int) string {
			return line + "Connection: " + distinct("x-%d,", size/2) + "\r\n" + distinct("X-%d: a\r\n", size/2) + "\r\n"
		},
	}
	random := rand.New(rand.NewPCG(21, 3))
	pieces := []string{"access_token=", "sgt_", "%41", "redacted ", "a,", "X-A: a\r\n", "Connection: b\r\n", ";q=1, ", "\u00e4", "Cookie: a=b\r\n", "User-Agent: c\r\n", "Authorization: d e f\r\n"}
	for i := range 24 {
		some := []string{pieces[random.IntN(len(pieces))], pieces[random.IntN(len(pieces))], pieces[random.IntN(len(pieces))]}
		heads[fmt.Sprintf("at random %d", i)] = func(size int) string {
			return headOf(line+"User-Agent: "+some[0]+"\r\n"+"X-B: ", strings.Join(some, ""), "\r\nX-C: d"+end, size)
		}
	}
	return heads
}

// workOn returns what a head costs from its bytes on a connection to the response, at the best of
// some tries: processor time, but for that of the client, and bytes allocated.
func workOn(t *testing.T, g *gateway, head string) (took time.Duration, allocated uint64) {
	runtime.LockOSThread() // so that the client's time can be told
	defer runtime.UnlockOSThread()
	var c *connection
	ask := func() {
		if c == nil {
			c = dial(t, g.address())
		}
		if _, err := c.Write([]byte(head)); err == nil {
			if response, err := http.ReadResponse(c.Reader, nil); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				if !response.Close {
					return
				}
			}
		}
		_ = c.Close() // it goes no further
		c = nil
	}
	ask()
	took = time.Hour
	for range 8 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := lineartest.OtherThreadsTime()
		const times = 4
		for range times {
			ask()
		}
		took = min(took, (lineartest.OtherThreadsTime()-begin)/times)
		runtime.ReadMemStats(&after)
		allocated = (after.TotalAlloc - before.TotalAlloc) / times
	}
	return took, allocated
}

// TestWorstHeads: what a head costs before a token is accepted grows as its length does, and the
// worst of 32 KiB costs at most five times what a plain one of that length does.
func TestWorstHeads(t *testing.T) {
	lineartest.SkipUnderRace(t)
	cuttest.SkipUnlessWhole(t, "it measures work, and most of it would be that of small reads")
	service := newUpstream(t, says(okResponse))
	route := public(service.url)
	route.Name, route.Path, route.Public = "svc", "/svc", false
	g := newGateway(t, gatewayOptions{headerBytes: 28 << 10}, route) // and the 4 KiB that net/http adds
	const size = 32<<10 - 64                                         // the most, and room for the last field
	plain := headOf("GET /svc/x HTTP/1.1\r\nHost: h\r\nX-Long: ", "abcdefghijklmnop", "\r\n\r\n", size)
	for name, head := range worstHeads() {
		t.Run(name, func(t *testing.T) {
			var fault string
			for range 4 { // neighbours share the processor's caches
				if fault = tooDear(t, g, plain, head(size/4), head(size)); fault == "" {
					return
				}
			}
			t.Error(fault)
		})
	}
}

// tooDear returns why a head costs too much, beside a plain one of its length, and beside one like it
// of a quarter of that length.
func tooDear(t *testing.T, g *gateway, plain, quarter, head string) string {
	plainTook, plainAllocated := workOn(t, g, plain)
	quarterTook, _ := workOn(t, g, quarter)
	took, allocated := workOn(t, g, head)
	t.Logf("%v %d B; 8 KiB: %v; plain: %v %d B", took, allocated, quarterTook, plainTook, plainAllocated)
	switch {
	case took > 5*plainTook:
		return fmt.Sprintf("32 KiB take %v, more than five times as long as a plain head (%v)", took, plainTook)
	case allocated > 5*plainAllocated:
		return fmt.Sprintf("32 KiB allocate %d bytes, more than five times as much as a plain head (%d)", allocated, plainAllocated)
	case took > 8*quarterTook:
		return fmt.Sprintf("32 KiB take %v, more than eight times as long as 8 KiB (%v)", took, quarterTook)
	}
	return ""
}
