package docker

import (
	"strconv"
	"strings"
)

// event is one change of a container or network.
type event struct {
	action    string
	container string // the container's id; empty if a network was made or removed
	network   string // the name of the network that the container joined or left
	signal    string // of a kill
	enabled   bool   // the container may have [EnableLabel]
}

// Filters for the events. Each health check causes three exec events on each container; the watcher
// does not ask for these.
var (
	kinds   = []string{"container", "network"}
	actions = []string{
		"create", "start", "restart", "unpause", "rename", "update", "connect", "health_status",
		"kill", "stop", "die", "oom", "destroy", "pause", "disconnect",
	}
)

// removal says how long an event keeps a container out of its route.
type removal int

const (
	nothing  removal = iota
	untilNow         // out until the next list
	ending           // out until the container has ended, which a list shows late
)

// removes returns how long the container of e must get no requests.
func (e event) removes() removal {
	switch e.action {
	case "kill":
		if endsProcess(e.signal) {
			return ending
		}
	case "die", "stop", "destroy":
		// Docker sends these events before it updates the list. The list may call the container
		// running until its networks are gone and its address belongs to another container.
		return ending
	case "pause", "disconnect", "health_status: unhealthy":
		return untilNow
	}
	return nothing
}

// Signals that usually do not end a process: by default a process ignores them, or programs handle
// them, as HUP to reload their configuration.
var harmlessSignals = []string{
	"HUP", "USR1", "USR2", "CHLD", "CONT", "URG", "WINCH", "IO",
	"1", "10", "12", "17", "18", "23", "28", "29",
}

// endsProcess reports whether signal, a number or a name, usually ends the process. It returns true
// for an unknown signal.
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
