package conformance

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestUnknownClientLooksLikeAWrongSecret asks the running gateway in the name of
// a client that is there and of one that is not, both with a wrong secret, in
// pairs and in random order, over two connections that stay open. Nothing may
// tell them apart: status, fields, text, nor the time of the response, of which the
// median of the differences within the pairs is judged. The tolerance is wide
// enough for a busy machine, and far below one look-up anywhere else; package
// handlers has the same test in process, with a fine one.
func TestUnknownClientLooksLikeAWrongSecret(t *testing.T) {
	g := start(t, "root")["root"]
	const pairs = 600
	wrong := "sgs_" + strings.Repeat("0", 49)
	for _, path := range []string{"/oauth2/token", "/oauth2/introspect", "/oauth2/revoke"} {
		known := newAsker(t, g, path, "worker", wrong)
		unknown := newAsker(t, g, path, "nobody", wrong)
		var difference, usual time.Duration
		for range 3 {
			difference, usual = compareTimes(t, known, unknown, pairs)
			if difference.Abs() < 15*time.Microsecond+usual/10 {
				break
			}
		}
		if diff := cmp.Diff(known.responses, unknown.responses); diff != "" {
			t.Errorf("%s tells an unknown client from a wrong secret (-wrong +unknown):\n%s", path, diff)
		}
		t.Logf("%s: an unknown client takes %v longer than the %v of a wrong secret", path, difference, usual)
		if difference.Abs() >= 15*time.Microsecond+usual/10 {
			t.Errorf("%s tells an unknown client from a wrong secret by the time it takes", path)
		}
	}
}

// asker sends one request again and again.
type asker struct {
	conn      net.Conn
	in        *bufio.Reader
	request   string
	responses map[string]bool // what came, without what differs between any two responses
}

func newAsker(t *testing.T, g *gateway, path, id, secret string) *asker {
	t.Helper()
	p := player{t: t, gateway: g}
	request := p.wire("POST " + path + " HTTP/1.1\nAuthorization: Basic {basic " + id + ":" + secret + "}\nConnection: keep-alive\n" +
		"Content-Type: application/x-www-form-urlencoded\n\ngrant_type=client_credentials&token=x")
	conn := g.Dial()
	return &asker{conn, bufio.NewReader(conn), request, make(map[string]bool)}
}

// ask sends the request once and returns how long the response took.
func (a *asker) ask(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	if _, err := io.WriteString(a.conn, a.request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(a.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	took := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Date", "X-Request-Id", "Retry-After"} {
		response.Header.Del(name)
	}
	a.responses[fmt.Sprintln(response.StatusCode, response.Header, string(body))] = true
	return took
}

// compareTimes returns the median of how much longer b takes than a, and the
// median of a.
func compareTimes(t *testing.T, a, b *asker, pairs int) (difference, usual time.Duration) {
	t.Helper()
	differences := make([]time.Duration, 0, pairs)
	all := make([]time.Duration, 0, pairs)
	for range pairs {
		var tookA, tookB time.Duration
		if rand.IntN(2) == 0 {
			tookA, tookB = a.ask(t), b.ask(t)
		} else {
			tookB, tookA = b.ask(t), a.ask(t)
		}
		differences, all = append(differences, tookB-tookA), append(all, tookA)
	}
	slices.Sort(differences)
	slices.Sort(all)
	return differences[pairs/2], all[pairs/2]
}
