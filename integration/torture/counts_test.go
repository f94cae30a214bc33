package torture_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// features returns what the report counts of an exchange, besides its kind.
func (e *exchange) features() (list []string) {
	note := func(is bool, format string, args ...any) {
		if is {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	note(true, "service: %s", e.lane)
	if fault := e.wrong(); fault != nil {
		note(true, "%s: %s", e.kind, fault.name)
		return list
	}
	note(e.odd == "", "method %s", e.method)
	note(e.old, "request in HTTP/1.0")
	note(e.follows, "pipelined: sent together with the request before")
	note(e.expect, "Expect: 100-continue")
	note(e.refuses, "Expect: 100-continue, refused")
	note(e.early(), "early response, service %s its connection", e.ending)
	note(e.upgrade, "upgrade to WebSocket")
	note(e.upgrade && e.ahead, "upgrade, client sends ahead of the 101")
	note(e.switches, "upgrade with a body")
	note(e.response.lie > 0, "length without a body (%s)", map[bool]string{true: "HEAD", false: "304"}[e.method == http.MethodHead])
	note(e.status == 204 || e.status == 304, "status %d", e.status)
	note(len(e.codes) > 0, "interim responses (1xx)")
	note(e.ending == silent, "service closes its connection without saying so")
	note(e.request.abortAt >= 0, "client aborts in the %s, %s", e.request.where(), e.request.manner())
	note(e.leaves >= 0, "client leaves within the response, %s", e.request.manner())
	note(e.response.abortAt >= 0, "service aborts in the %s, %s", e.response.where(), e.response.manner())
	for who, m := range map[string]*message{"request": &e.request, "response": &e.response} {
		note(true, "%s: body with %s", who, m.coding)
		note(len(m.trailer) > 0, "%s: trailer", who)
		note(m.extension != "", "%s: chunk extension", who)
		note(slices.ContainsFunc(m.cuts, func(c cut) bool { return c.pause }), "%s: pauses", who)
		if m.coding == chunked {
			for _, size := range m.chunkClasses() {
				note(true, "%s: chunks of %s", who, size)
			}
		}
	}
	return list
}

// where tells in which part of the message it is aborted.
func (m *message) where() string {
	if m.abortAt < m.head {
		return "header"
	}
	return "body"
}

// manner tells how the connection ends.
func (m *message) manner() string {
	if m.reset {
		return "with a reset"
	}
	return "with an end"
}

// chunkClasses returns how large the chunks are.
func (m *message) chunkClasses() []string {
	bounds := []struct {
		most int
		name string
	}{{1, "1 byte"}, {100, "up to 100 bytes"}, {4 << 10, "up to 4 KiB"}, {64 << 10, "up to 64 KiB"}, {1 << 20, "up to 1 MiB"}, {1 << 40, "more than 1 MiB"}}
	seen := map[string]bool{}
	for _, p := range m.parts {
		for _, b := range bounds {
			if p.size <= b.most {
				seen[b.name] = true
				break
			}
		}
	}
	var list []string
	for name := range seen {
		list = append(list, name)
	}
	return list
}

// rows makes rows of a table of counts.
func rows(counts map[string]int) string {
	var list []string
	for name, n := range counts {
		list = append(list, fmt.Sprintf("| %s | %d |", name, n))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}
