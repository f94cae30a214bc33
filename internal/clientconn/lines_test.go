package clientconn_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"snowgate/integration/cuttest"
)

// TestLinesOfAHead: a head with too many lines is too large, anywhere on the connection. Nothing
// else counts as one.
func TestLinesOfAHead(t *testing.T) {
	fields := func(n int) string { return strings.Repeat("a:\r\n", n) }
	get := func(n int) string { return "GET / HTTP/1.1\r\nHost: h\r\n" + fields(n) + "\r\n" }
	post := func(body string) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	lines := strings.Repeat("\n", 100_000)
	tests := []struct {
		why, sent, want string
	}{
		{"few", get(20), "200 0"},
		{"the most", get(497), "200 0"}, // plus two lines, and the end
		{"far too many", get(7000), "431"},
		{"with LF alone", strings.ReplaceAll(get(7000), "\r\n", "\n"), "431"},
		{"behind another request", get(1) + get(7000), "200 0, 431"},
		{"behind a body", post("x") + get(7000), "200 1, 431"},
		{"a body of lines", post(lines), "200 100000"},
		{"bodies of lines, one behind the other", post(lines) + post(lines) + get(1), "200 100000, 200 100000, 200 0"},
		{"small bodies of lines", strings.Repeat(post(lines[:700]), 3), "200 700, 200 700, 200 700"},
		{"chunks of lines", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("2\r\n\n\n\r\n", 5000) + "0\r\n\r\n" + get(1), "200 10000, 200 0"},
	}
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}, false)
	for _, test := range tests {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		go func() { _, _ = io.WriteString(cuttest.Writes(conn), test.sent) }()
		var got []string
		for in := bufio.NewReader(conn); len(got) < strings.Count(test.want, ",")+1; {
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				got = append(got, err.Error())
				break
			}
			body, _ := io.ReadAll(response.Body)
			if response.StatusCode != http.StatusOK {
				body = nil
			}
			got = append(got, strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", string(body))))
		}
		if got := strings.Join(got, ", "); got != test.want {
			t.Errorf("%s: %s, want %s", test.why, got, test.want)
		}
	}
}

// TestLinesAreForgotten: the lines of one head do not count for the next.
func TestLinesAreForgotten(t *testing.T) {
	server, _ := serve(t, func(http.ResponseWriter, *http.Request) {}, false)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	for range 20 {
		fmt.Fprintf(cuttest.Writes(conn), "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", strings.Repeat("a:\r\n", 400))
		response, err := http.ReadResponse(in, nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("a head of 400 fields: %v %v", response, err)
		}
	}
}
