package foreign_test

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// repeated reads the block again and again, up to a length. The length of the block
// is no multiple of a buffer's.
type repeated struct{ at, length int64 }

func (r *repeated) Read(p []byte) (int, error) {
	if r.at == r.length {
		return 0, io.EOF
	}
	n := copy(p, block[r.at%int64(len(block)):])
	n = int(min(int64(n), r.length-r.at))
	r.at += int64(n)
	return n, nil
}

// digestOf returns the digest of length bytes of the block repeated.
func digestOf(length int64) string {
	h := sha256.New()
	_, _ = io.Copy(h, &repeated{length: length})
	return sum(h)
}

func sum(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }

// serveVolume sends as many bytes as asked for, and tells the digest of what it gets.
func serveVolume(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		h := sha256.New()
		n, err := io.CopyBuffer(h, struct{ io.Reader }{r.Body}, make([]byte, 128<<10))
		_, _ = fmt.Fprint(w, n, " ", sum(h), " ", err)
		return
	}
	length, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if r.URL.Query().Get("chunked") == "" {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	_, _ = io.CopyBuffer(struct{ io.Writer }{w}, &repeated{length: length}, make([]byte, 128<<10))
}

// TestVolume has curl download and upload much, which is compared by its digest and
// kept nowhere.
func TestVolume(t *testing.T) {
	t.Parallel()
	program := gatewaytest.Require(t, "curl", "curl")
	s := newStage(t, http.HandlerFunc(serveVolume))
	size := int64(amountOf(32<<20, 128<<20, 1<<30))
	want := digestOf(size)
	for _, way := range curlWays {
		if way.secure && way.version == "1.1" {
			continue // nothing that the others have not
		}
		url, args := s.base(way.secure)
		args = append(append([]string{"--noproxy", "*", "-sSf", "-m", "600"}, way.args...), args...)
		moveVolume(t, program, way.name, url, args, size, want)
		if way.version == "1.1" {
			moveVolume(t, program, way.name+", transport: standard", strings.TrimSuffix(url, "/svc")+"/standard", args, size, want)
		}
	}
}

// moveVolume has curl download twice and upload once.
func moveVolume(t *testing.T, program, name, url string, args []string, size int64, want string) {
	t.Helper()
	amount := strconv.FormatInt(size>>20, 10) + " MiB"
	for _, query := range []string{"", "&chunked=1"} {
		begin, h := time.Now(), sha256.New()
		command := exec.CommandContext(t.Context(), program, append(args, url+"/down?n="+strconv.FormatInt(size, 10)+query)...)
		command.Stdout = h
		if err := command.Run(); err != nil || sum(h) != want {
			t.Errorf("%s down%s: %v, digest %s, want %s", name, query, err, sum(h), want)
		}
		record(t, "curl, "+name+", download"+strings.TrimSuffix(strings.ReplaceAll(query, "&", " "), "=1"), amount, time.Since(begin))
	}
	begin := time.Now()
	command := exec.CommandContext(t.Context(), program, append(args, "-T", "-", url+"/up")...)
	command.Stdin = &repeated{length: size}
	out, err := command.Output()
	if told := fmt.Sprint(size, " ", want, " ", nil); err != nil || string(out) != told {
		t.Errorf("%s up: %v %s, the service says %q, want %q", name, err, stderrOf(err), out, told)
	}
	record(t, "curl, "+name+", upload without a length", amount, time.Since(begin))
}
