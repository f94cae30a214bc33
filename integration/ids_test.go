package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestTheFiveSystems starts a gateway for each row of the table of systems in
// docs/reference/ids.md, configured as the row says, and reads the id of a token.
func TestTheFiveSystems(t *testing.T) {
	t.Parallel()
	rows := systemRows(t)
	if len(rows) != 5 {
		t.Fatalf("docs/reference/ids.md has %d systems, want 5", len(rows))
	}
	// The numbers are those that each source must come to on an empty Redis; -1
	// where that depends on the host's address.
	want := map[string]int64{"A": -1, "B": 0, "C": 7, "D": 7, "E": 1}
	for system, env := range rows {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			client := gatewaytest.NewClient("worker", "a")
			g := gatewaytest.Start(t, gatewaytest.Options{
				Config: "clients:\n" + client.YAML,
				Env:    append(env, "SNOWGATE_REDIS_URL="+redis.URL()),
			})
			id, err := idgen.Parse(strings.Split(g.Token(client), "_")[1])
			if err != nil {
				t.Fatal(err)
			}
			layout, err := idgen.ParseLayout(valueOf(env, "SNOWGATE_ID_LAYOUT"))
			if err != nil {
				t.Fatal(err)
			}
			scheme, err := idgen.NewScheme(layout, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			if err != nil {
				t.Fatal(err)
			}
			parts, err := scheme.Decompose(id)
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(parts.Time).Abs(); age > time.Minute {
				t.Errorf("the id is of %v, %v off", parts.Time, age)
			}
			if worker := want[system]; worker >= 0 && parts.Worker != worker {
				t.Errorf("worker %d, want %d", parts.Worker, worker)
			}
			if layout.Bits(idgen.FieldDatacenter) > 0 && parts.Datacenter != 1 {
				t.Errorf("datacenter %d, want 1", parts.Datacenter)
			}
		})
	}
}

// TestRevokeAWorkerOfEachSystem: the number that the id, readiness and the log name is the one that
// a revocation takes, whatever the layout; the pair of datacenter and number within it is another
// way to name it, and a pair that cannot be is an error.
func TestRevokeAWorkerOfEachSystem(t *testing.T) {
	t.Parallel()
	for system, env := range systemRows(t) {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			a := startAdministeredAs(t, redistest.Start(t), env...)
			var decoded struct {
				Worker     int64
				Datacenter *int64
				Within     *int64 `json:"worker_in_datacenter"`
			}
			read := func(path string, into any) {
				t.Helper()
				if got := a.ask("GET", path, ""); json.Unmarshal([]byte(got.Body), into) != nil || got.StatusCode != http.StatusOK {
					t.Fatalf("GET %s: %d %s", path, got.StatusCode, got.Body)
				}
			}
			victim := a.Token(fileClient)
			read("/ids/"+publicID(victim), &decoded)
			var health struct{ Issuing struct{ Worker int64 } }
			read("/health", &health)
			if health.Issuing.Worker != decoded.Worker {
				t.Errorf("the id is of worker %d, the gateway calls itself %d", decoded.Worker, health.Issuing.Worker)
			}
			ways := []string{fmt.Sprintf(`"worker":%d`, decoded.Worker)}
			if decoded.Datacenter != nil {
				ways = append(ways, fmt.Sprintf(`"worker":%d,"datacenter":%d`, *decoded.Within, *decoded.Datacenter))
			}
			if a.ask("POST", "/revocations", workerRule(`"worker":1,"datacenter":1000`)).StatusCode != http.StatusUnprocessableEntity {
				t.Error("a datacenter that cannot be is accepted")
			}
			for _, way := range ways {
				if !a.canCall(victim) {
					t.Fatalf("the token is not good before its worker is revoked by %s", way)
				}
				if got := a.ask("POST", "/revocations", workerRule(way)); got.StatusCode != http.StatusCreated {
					t.Fatalf("revoke %s: %d %s", way, got.StatusCode, got.Body)
				}
				a.token = "" // it was this worker's, too
				if response := a.Get("/orders", victim); response.StatusCode != http.StatusUnauthorized {
					t.Errorf("after the revocation by %s the token gets %d", way, response.StatusCode)
				}
				a = startAdministeredAs(t, redistest.Start(t), env...)
				victim = a.Token(fileClient)
			}
		})
	}
}

// workerRule is a revocation of all that a worker has issued up to now.
func workerRule(worker string) string {
	return fmt.Sprintf(`{%s,"from":"2026-01-01T00:00:00Z","until":%q}`, worker, time.Now().UTC().Format(time.RFC3339Nano))
}

// startAdministeredAs is startAdministered with the worker number of env.
func startAdministeredAs(t *testing.T, redis *redistest.Server, env ...string) *administered {
	t.Helper()
	return startAdministered(t, redis, 1, administrator(), gatewaytest.NewRecorder(t, ""), env...)
}

var cell = regexp.MustCompile("`([^`]+)`")

// systemRows returns the environment that docs/reference/ids.md gives for each system.
func systemRows(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/ids.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || len(cells[1]) < 4 || cells[1][2] != ':' || strings.Contains(cells[1], "`") {
			continue
		}
		env := []string{"SNOWGATE_ID_LAYOUT=" + cell.FindStringSubmatch(cells[2])[1]}
		if source := cell.FindStringSubmatch(cells[3]); source != nil {
			env = append(env, "SNOWGATE_WORKER_ID="+source[1])
		} else {
			env = append(env, "SNOWGATE_WORKER_ID=7") // "a number"
		}
		env = append(env, "SNOWGATE_ID_ROLLBACK="+cell.FindStringSubmatch(cells[4])[1])
		for _, more := range cell.FindAllStringSubmatch(cells[5], -1) {
			switch name, value, given := strings.Cut(more[1], "="); {
			case given:
				env = append(env, name+"="+value)
			case name == "SNOWGATE_DATACENTER_ID":
				env = append(env, "SNOWGATE_DATACENTER_ID=1")
			}
		}
		rows[cells[1][1:2]] = env
	}
	if len(rows) == 0 {
		t.Fatal("docs/reference/ids.md has no table of systems")
	}
	return rows
}

func valueOf(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
