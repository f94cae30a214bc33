package readonly

import (
	"encoding/json"
	"strings"

	"snowgate/proxy/docker"
)

// container is what is told of a container in the list.
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

// network is what is told of a network in the list.
type network struct {
	Name string
	ID   string `json:"Id"`
	IPAM struct {
		Config []struct{ Subnet string }
	}
}

// event is what is told of an event.
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

// known reports whether e is an event of a container or a network. Those of commands
// that are run in a container have the command in their name.
func (e *event) known() bool {
	return (e.Type == "container" || e.Type == "network") && !strings.HasPrefix(e.Action, "exec_")
}

// labels keeps the labels that discovery looks at.
type labels map[string]string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *labels) UnmarshalJSON(text []byte) error {
	return keep((*map[string]string)(l), text, docker.LooksAt)
}

// attributes keeps those of an event that discovery looks at. The labels of a container
// are among them; that it has one of the gateway's is told, but not what it says.
type attributes map[string]string

// UnmarshalJSON implements [json.Unmarshaler].
func (a *attributes) UnmarshalJSON(text []byte) error {
	return keep((*map[string]string)(a), text, func(name string) bool {
		return name == docker.EnableLabel || name == "signal" || name == "container" || name == "name"
	})
}

// keep decodes an object of texts and keeps what is wanted of it.
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
