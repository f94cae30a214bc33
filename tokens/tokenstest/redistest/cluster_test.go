package redistest_test

import (
	"strconv"
	"strings"
	"testing"

	"snowgate/tokens/tokenstest/redistest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for _, key := range []string{"", "x", "{sg}:rev", "a{sg}", "{}a", "{}{sg}", "{sg", "{a}{b}", "123456789"} {
		if want := c.Nodes[0].Do("CLUSTER", "KEYSLOT", key); strconv.Itoa(redistest.Slot(key)) != want {
			t.Errorf("Slot(%q) = %d, want %s", key, redistest.Slot(key), want)
		}
	}

	from := c.Owner("{sg}")
	to := c.Other(from)
	const n = 25
	for i := range n {
		from.Do("SET", "{sg}:"+strconv.Itoa(i), "v")
	}
	c.Move("{sg}", to, func() {
		_, err := from.TryDo("GET", "{sg}:gone")
		if err == nil || !strings.Contains(err.Error(), "ASK "+strconv.Itoa(redistest.Slot("{sg}"))) {
			t.Errorf("under way: %v, want ASK", err)
		}
		if got := from.Do("CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(redistest.Slot("{sg}"))); got != strconv.Itoa(n/2) {
			t.Errorf("under way: %s keys are where they were, want %d", got, n/2)
		}
	})
	if c.Owner("{sg}:1") != to {
		t.Error("the keys have not moved")
	}
	for i := range n {
		if got := to.Do("GET", "{sg}:"+strconv.Itoa(i)); got != "v" {
			t.Errorf("key %d = %q at the new owner", i, got)
		}
	}
	if _, err := from.TryDo("GET", "{sg}:1"); err == nil || !strings.Contains(err.Error(), "MOVED") {
		t.Errorf("at the old owner: %v, want MOVED", err)
	}

	from.Kill()
	to.Eventually("go on without a node", func() bool {
		info := to.Do("CLUSTER", "INFO")
		return strings.Contains(info, "cluster_slots_fail:") && !strings.Contains(info, "cluster_slots_fail:0") &&
			strings.Contains(info, "cluster_state:ok")
	})
	c.Move("{sg}", c.Other(from)) // with a node down
	from.Restart()
	c.WaitReady()
}
