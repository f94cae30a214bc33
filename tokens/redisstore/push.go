package redisstore

import (
	"strings"
	"time"

	"snowgate/idgen"
)

// The kinds of messages on the push channel, which are the first word of each:
//
//	token  <id> <ms>            a token was revoked
//	rules  <revision> <ms>      a rule was written
//	client <id> <revision> <ms> a registry client was changed, and its generation maybe
//	keys   <revision> <ms>      a tag key was added or removed
//
// ms is Redis TIME in Unix milliseconds. A message is only a hint to read the data again. The
// gateway does not rely on its content.
const (
	PushToken  = "token"
	PushRules  = "rules"
	PushClient = "client"
	PushKeys   = "keys"
)

// push is a valid message.
type push struct {
	kind string
	id   idgen.ID // PushToken
	sent time.Time
}

// parsePush parses a message; ok is false for a message that no script sends.
func parsePush(message string) (p push, ok bool) {
	const longest = len("client ") + maxClient + 2*len(" 9007199254740992")
	if len(message) > longest {
		return push{}, false
	}
	words := strings.Split(message, " ")
	p.kind = words[0]
	switch {
	case p.kind == PushToken && len(words) == 3:
		id, err := idgen.Parse(words[1])
		if err != nil {
			return push{}, false
		}
		p.id = id
	case (p.kind == PushRules || p.kind == PushKeys) && len(words) == 3,
		p.kind == PushClient && len(words) == 4 && words[1] != "":
		if _, err := parseExact(words[len(words)-2]); err != nil {
			return push{}, false
		}
	default:
		return push{}, false
	}
	milli, err := parseExact(words[len(words)-1])
	if err != nil {
		return push{}, false
	}
	p.sent = time.UnixMilli(int64(milli))
	return p, true
}
