package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/internal/echo"
)

// When a container is killed, only those of its requests fail that it was
// answering: here uploads that have not ended.
func TestKilledContainer(t *testing.T) {
	p := engine(t)
	others := p.bystander(t)
	p.scaleBack(t, "inventory", 2)
	l := p.load(t, "/inventory/1", "inventory")
	eventually(t, patience, "both are asked", func() bool { return len(responses(l.since(time.Time{}))) == 2 })
	uploads := make([]*upload, 16) // so many that both have some
	for i := range uploads {
		uploads[i] = p.startUpload(t, "/inventory/upload/"+strconv.Itoa(i))
	}
	awaitOutcomes(t, l, 50)

	victim := p.containers(t, "inventory")[0].ID
	docker(t, "kill", victim)
	died := inspect(t, victim)[0].State.FinishedAt
	awaitOutcomes(t, l, 200)
	outcomes := l.stop()
	t.Logf("slowest %v; %s", slowest(outcomes), describe(outcomes, died))
	bad := failures(outcomes)
	if len(bad) > loadWorkers {
		t.Errorf("%d requests failed, at most %d were in flight", len(bad), loadWorkers)
	}
	for _, o := range bad {
		if late := o.sent.Sub(died); late > unawareTime {
			t.Errorf("a request sent %v after the end failed: %s", late, o.failure)
		}
	}
	if last := lastBy(outcomes, host(victim)); last.After(died) {
		t.Errorf("the container answered a request sent %v after its end", last.Sub(died))
	}
	lost := 0
	for _, u := range uploads {
		switch by, err := u.finish(); {
		case err != nil:
			lost++
			t.Logf("upload: %v", err)
		case by == host(victim):
			t.Errorf("an upload was answered by the container that was killed")
		}
	}
	if lost == 0 || lost == len(uploads) {
		t.Errorf("%d of %d uploads failed, want those of one of two replicas", lost, len(uploads))
	}
	others.mustBeFine(t)
}

// unawareTime is for how long a request may still be written to a connection
// whose other end is gone.
const unawareTime = 500 * time.Millisecond

// A container that says it is ill gets no request any more when Docker has noticed
// that, which takes one interval of its health check, and gets them again when it
// is well.
func TestUnhealthyContainer(t *testing.T) {
	p := engine(t)
	others := p.bystander(t)
	p.scaleBack(t, "inventory", 2)
	l := p.load(t, "/inventory/1", "inventory")
	eventually(t, patience, "both are asked", func() bool { return len(responses(l.since(time.Time{}))) == 2 })

	patient := p.containers(t, "inventory")[0].ID
	ill := time.Now()
	docker(t, "kill", "-s", "USR1", patient)
	checked := p.awaitHealth(t, patient, "unhealthy")
	begin := time.Now().Add(noticeTime)
	eventually(t, patience, "100 requests later", func() bool { return len(l.since(begin)) >= 100 })
	last := lastBy(l.since(time.Time{}), host(patient))
	t.Logf("the last request is sent %v after the illness begins, %v after the check that finds it ends", last.Sub(ill), last.Sub(checked))
	if late := last.Sub(checked); late > noticeTime {
		t.Errorf("a request is sent to the container %v after Docker found it ill, want at most %v", late, noticeTime)
	}
	if late := last.Sub(ill); late > checkInterval+checkTime {
		t.Errorf("a request is sent to the container %v after it turned ill, want at most its check interval, %v, and %v", late, checkInterval, checkTime)
	}

	docker(t, "kill", "-s", "USR2", patient)
	p.awaitHealth(t, patient, "healthy")
	well := time.Now()
	eventually(t, patience, "it is asked again", func() bool { return responses(l.since(well))[host(patient)] > 0 })
	t.Logf("asked again %v after it is well", time.Since(well))
	outcomes := l.stop()
	if n := len(failures(outcomes)); n > 0 {
		t.Errorf("%d requests failed; %s", n, describe(outcomes, ill))
	}
	others.mustBeFine(t)
}

const (
	// checkInterval is that of the health check in testdata/compose.yml.
	checkInterval = time.Second
	// checkTime is how long a check may take, with what follows from it. It is about
	// 100 ms on a machine with nothing else to do.
	checkTime = 3 * time.Second
	// noticeTime is how long after Docker has found something the gateway may still
	// act as before, at most. It is milliseconds on a machine with nothing else to do.
	noticeTime = time.Second
)

// The address of a container that is gone may soon be that of another one, which
// must not get what was meant for the first.
func TestAddressReused(t *testing.T) {
	p := engine(t)
	address := p.subnet + ".20"
	labels := []string{"snowgate.enable", "true", "snowgate.path", "/lent", "snowgate.scopes", "orders.read"}
	for name, end := range map[string][]string{"stopped": {"stop", "-t", "2"}, "removed": {"rm", "-f"}} {
		t.Run(name, func(t *testing.T) {
			first := p.launch(t, "first-"+name, labels, "--ip", address)
			p.awaitStatus(t, "/lent", http.StatusOK)
			l := p.load(t, "/lent", "first-"+name)
			awaitOutcomes(t, l, 50)
			docker(t, append(end, first)...)
			ended := time.Now()
			p.launch(t, "second-"+name, nil, "--ip", address)
			awaitOutcomes(t, l, 200)
			for _, o := range l.stop() {
				// 404 when the container is removed, 503 as long as there is one.
				gone := strings.HasPrefix(o.failure, "status 503") || strings.HasPrefix(o.failure, "status 404")
				if o.sent.After(ended) && !gone || o.replica != "" && o.replica != host(first) {
					t.Fatalf("a request sent %v after the end of the container: %s", o.sent.Sub(ended), o.failure)
				}
			}
			_, _ = run(nil, "docker", "rm", "-f", first)
		})
	}
}

// scaleBack has Compose run so many containers of a service, and one again when
// the test ends.
func (p *project) scaleBack(t *testing.T, service string, n int) {
	t.Helper()
	t.Cleanup(func() {
		p.scale(t, service, 1)
		p.awaitHealth(t, p.only(t, service).ID, "healthy")
	})
	p.scale(t, service, n)
}

// awaitHealth waits until Docker says that a container is in that state of health
// and returns when the check that found it has ended.
func (p *project) awaitHealth(t *testing.T, id, status string) time.Time {
	t.Helper()
	var checked time.Time
	eventually(t, patience, "the container is "+status, func() bool {
		health := inspect(t, id)[0].State.Health
		if health == nil || health.Status != status || len(health.Log) == 0 {
			return false
		}
		checked = health.Log[len(health.Log)-1].End
		return true
	})
	return checked
}

// upload is a request whose body does not end before it is told to.
type upload struct {
	body     *io.PipeWriter
	response chan error
	by       string // who answered
}

// startUpload sends the beginning of a request that stays under way.
func (p *project) startUpload(t *testing.T, path string) *upload {
	t.Helper()
	in, out := io.Pipe()
	u := &upload{body: out, response: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, in)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	transport := &http.Transport{DisableKeepAlives: true}
	go func() { u.response <- u.send(transport, request) }()
	if _, err := out.Write(bytes.Repeat([]byte("x"), loadBody)); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *upload) send(transport *http.Transport, request *http.Request) error {
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	var received echo.Received
	err = decode(response.Body, &received)
	u.by = received.Hostname
	return err
}

// finish ends the body and returns who answered.
func (u *upload) finish() (by string, err error) {
	_ = u.body.Close()
	err = <-u.response
	return u.by, err
}
