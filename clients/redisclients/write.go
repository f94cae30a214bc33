package redisclients

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"snowgate/clients"
	"snowgate/internal/redisscript"
)

// write is the change of one client that a script makes.
type write struct {
	id       string
	expected string          // a revision, or "new"
	after    *clients.Client // put sets its revision and generation
	stop     bool            // the tokens issued so far become invalid
	forget   []string        // fields of the last uses
}

var (
	errForgotten = errors.New("redis has forgotten changes that this gateway knows of")
	errReply     = errors.New("a script returned what it should not")
)

// put writes a client to Redis and to the registry. name is the random name of the operation.
func (s *Store) put(ctx context.Context, op, name string, w write) error {
	rest, err := encodeRest(*w.after)
	if err != nil {
		return err
	}
	generation := strconv.FormatUint(w.after.Generation, 10)
	if w.stop {
		generation = "stop"
	}
	v, g, err := s.run(ctx, op, putScript, func(known uint64) []any {
		return withForgotten([]any{w.id, w.expected, name, known, rest, generation, s.options.MaxTTL.Milliseconds(), grace.Milliseconds()}, w.forget)
	})
	if err != nil {
		return err
	}
	w.after.Revision, w.after.Generation = v, g
	s.apply([]entry{{id: w.id, revision: v, client: w.after}})
	return nil
}

// remove deletes a client from Redis and the registry.
func (s *Store) remove(ctx context.Context, op, name string, before *clients.Client) error {
	v, _, err := s.run(ctx, op, deleteScript, func(known uint64) []any {
		return withForgotten([]any{before.ID, before.Revision, name, known, s.options.MaxTTL.Milliseconds(), grace.Milliseconds()}, usedFields(before))
	})
	if err != nil {
		return err
	}
	s.apply([]entry{{id: before.ID, revision: v}})
	return nil
}

func withForgotten(args []any, fields []string) []any {
	for _, field := range fields {
		args = append(args, field)
	}
	return args
}

// run runs a script that changes one client. If Redis has lost changes, it writes them back and
// runs the script once more. It returns the revision and the generation.
func (s *Store) run(ctx context.Context, op string, sc *redisscript.Script, args func(known uint64) []any) (revision, generation uint64, err error) {
	for range 2 {
		reply, err := s.ask(ctx, sc, args(s.Revision())...)
		if err != nil {
			return 0, 0, failure(op, err)
		}
		if len(reply) != 3 {
			return 0, 0, failure(op, errReply)
		}
		if reply[0] != "behind" {
			return outcome(op, reply)
		}
		if err := s.Refresh(ctx); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, failure(op, errForgotten)
}

// outcome decodes the reply of a script.
func outcome(op string, reply []string) (revision, generation uint64, err error) {
	switch reply[0] {
	case "done":
		v, err1 := parseExact(reply[1])
		g, err2 := parseExact(reply[2])
		if err := errors.Join(err1, err2); err != nil {
			return 0, 0, failure(op, err)
		}
		return v, g, nil
	case "exists":
		return 0, 0, clients.ErrExists
	case "missing":
		return 0, 0, clients.ErrNotFound
	case "conflict":
		return 0, 0, clients.ErrConflict
	case "damaged":
		return 0, 0, failure(op, errors.New("the document in Redis cannot be read"))
	default:
		return 0, 0, failure(op, fmt.Errorf("%w: %.32q", errReply, reply[0]))
	}
}

// parseExact parses a number as the scripts write it: decimal, without sign or
// leading zeros, and not rounded by Lua.
func parseExact(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > maxExact || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%.32q is not a number", text)
	}
	return n, nil
}
