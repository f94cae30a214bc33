package docker

import (
	"strconv"
	"strings"
)

// event is what happened to a container or network.
type event struct {
	action    string
	container string // its id; empty if a network was made or removed
	network   string // the name of the network that it came to or left
	signal    string // of kill
	enabled   bool   // the container may have [EnableLabel]
}

// Filters of the events that are asked for. Health checks make three exec events
// each, on every container: those are left to Docker.
var (
	kinds   = []string{"container", "network"}
	actions = []string{
		"create", "start", "restart", "unpause", "rename", "update", "connect", "health_status",
		"kill", "stop", "die", "oom", "destroy", "pause", "disconnect",
	}
)

// removal is what an event takes away.
type removal int

const (
	nothing  removal = iota
	untilNow         // the container is out until the next list
	ending           // it is out until it has ended, which a list does not tell at once
)

// removes tells whether the container of e must get no more requests.
func (e event) removes() removal {
	switch e.action {
	case "kill":
		if endsProcess(e.signal) {
			return ending
		}
	case "die", "stop", "destroy":
		// Docker says so before it writes it down: a list may call the container running
		// until its networks are taken apart, and its address given to another.
		return ending
	case "pause", "disconnect", "health_status: unhealthy":
		return untilNow
	}
	return nothing
}

// Signals that usually do not end a process, or are used to tell it something.
var harmlessSignals = []string{
	"HUP", "USR1", "USR2", "CHLD", "CONT", "URG", "WINCH", "IO",
	"1", "10", "12", "17", "18", "23", "28", "29",
}

// endsProcess reports whether signal, a number or a name, is meant to end the process. A signal
// that it does not know counts as one that is.
func endsProcess(signal string) bool {
	name := strings.TrimPrefix(strings.ToUpper(signal), "SIG")
	if n, err := strconv.Atoi(name); err == nil {
		name = strconv.Itoa(n)
	}
	for _, harmless := range harmlessSignals {
		if name == harmless {
			return false
		}
	}
	return true
}
