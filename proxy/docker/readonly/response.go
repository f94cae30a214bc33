package readonly

import (
	"encoding/json"
	"strings"

	"snowgate/proxy/docker"
)

// container is the part of a container that the list shows.
type container struct {
	ID              string `json:"Id"`
	Names           []string
	Created         int64
	Labels          labels
	State           string
	Status          string
	Health          *health `json:",omitempty"`
	Ports           []port
	NetworkSettings struct {
		Networks map[string]endpoint
	}
}

type health struct{ Status string }

type port struct {
	PrivatePort uint16
	Type        string
}

type endpoint struct {
	IPAddress           string
	IPPrefixLen         int
	GlobalIPv6Address   string
	GlobalIPv6PrefixLen int
}

// network is the part of a network that the list shows.
type network struct {
	Name string
	ID   string `json:"Id"`
	IPAM struct {
		Config []struct{ Subnet string }
	}
}

// event is the part of an event that the stream shows.
type event struct {
	Type   string
	Action string
	Actor  struct {
		ID         string
		Attributes attributes
	}
	Time     int64 `json:"time,omitempty"`
	TimeNano int64 `json:"timeNano,omitempty"`
}

// known reports whether e is an event of a container or a network. Events of commands that run in a
// container are not: their names hold the command.
func (e *event) known() bool {
	return (e.Type == "container" || e.Type == "network") && !strings.HasPrefix(e.Action, "exec_")
}

// labels keeps the labels that discovery reads.
type labels map[string]string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *labels) UnmarshalJSON(text []byte) error {
	return keep((*map[string]string)(l), text, docker.LooksAt)
}

// attributes keeps the attributes of an event that discovery reads. Docker puts the labels of the
// container among the attributes. attributes keeps only [docker.EnableLabel], whose value does not
// matter.
type attributes map[string]string

// UnmarshalJSON implements [json.Unmarshaler].
func (a *attributes) UnmarshalJSON(text []byte) error {
	return keep((*map[string]string)(a), text, func(name string) bool {
		return name == docker.EnableLabel || name == "signal" || name == "container" || name == "name"
	})
}

// keep decodes an object of strings and keeps the wanted members.
func keep(kept *map[string]string, text []byte, wanted func(name string) bool) error {
	var all map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for name := range all {
		if !wanted(name) {
			delete(all, name)
		}
	}
	*kept = all
	return nil
}
