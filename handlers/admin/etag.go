package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"snowgate/clients"
	"snowgate/internal/problem"
)

// etag returns the entity tag of a client, which is its revision (RFC 9110 §8.8.3). Clients of the
// configuration have none, because the API cannot change them.
func etag(c *clients.Client) string {
	if c.Source != clients.SourceRegistry {
		return ""
	}
	return tag(c.Revision)
}

func tag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

func setETag(header http.Header, c *clients.Client) {
	if tag := etag(c); tag != "" {
		header.Set("ETag", tag)
	}
}

// tags holds the entity tags of a condition (RFC 9110 §13.1).
type tags struct {
	given bool
	any   bool // *
	list  []string
}

// readTags reads If-Match or If-None-Match. Our tags contain no comma.
func readTags(header http.Header, name string) tags {
	lines := header.Values(name)
	t := tags{given: len(lines) > 0}
	for _, line := range lines {
		for tag := range strings.SplitSeq(line, ",") {
			switch tag = strings.Trim(tag, " \t"); tag { // OWS, RFC 9110 §5.6.3
			case "":
			case "*":
				t.any = true
			default:
				t.list = append(t.list, tag)
			}
		}
	}
	return t
}

// notModified reports whether If-None-Match matches current, by the weak comparison of RFC 9110
// §13.1.2.
func notModified(header http.Header, current string) bool {
	t := readTags(header, "If-None-Match")
	if current == "" {
		return false
	}
	return t.any || slices.ContainsFunc(t.list, func(tag string) bool { return strings.TrimPrefix(tag, "W/") == current })
}

// expected returns the revision in If-Match, or 0 for any revision. A weak or foreign tag matches
// nothing (RFC 9110 §13.1.1) and gets a 412. Several tags get a 400, because no client needs them
// here.
func expected(header http.Header) (revision uint64, err error) {
	t := readTags(header, "If-Match")
	switch {
	case !t.given, t.any && len(t.list) == 0:
		return 0, nil
	case t.any || len(t.list) != 1:
		return 0, problem.New(http.StatusBadRequest, "If-Match takes one entity tag here, or *.", nil)
	}
	revision, err = strconv.ParseUint(strings.Trim(t.list[0], `"`), 10, 64)
	if err == nil && revision > 0 && t.list[0] == tag(revision) { // strong comparison
		return revision, nil
	}
	return 0, preconditionFailed(nil)
}

// required is expected for changes that require If-Match (RFC 6585 §3).
func required(header http.Header) (revision uint64, err error) {
	if !readTags(header, "If-Match").given {
		return 0, problem.New(http.StatusPreconditionRequired,
			"This change needs If-Match with the ETag of the client as you read it, so that no change of somebody else is lost, or with * for any revision.", nil)
	}
	return expected(header)
}

func preconditionFailed(err error) error {
	return problem.New(http.StatusPreconditionFailed, "The client was changed meanwhile: read it again.", err)
}
