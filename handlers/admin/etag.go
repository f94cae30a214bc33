package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"snowgate/clients"
	"snowgate/internal/problem"
)

// etag is the entity tag of a client: its revision (RFC 9110 §8.8.3). Clients of
// the configuration have none, they cannot be changed here.
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

// tags are the entity tags of a condition (RFC 9110 §13.1).
type tags struct {
	given bool
	any   bool // *
	list  []string
}

// readTags reads If-Match or If-None-Match. Our tags hold no comma.
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

// notModified reports whether the caller has what there is, by the weak
// comparison of RFC 9110 §13.1.2.
func notModified(header http.Header, current string) bool {
	t := readTags(header, "If-None-Match")
	if current == "" {
		return false
	}
	return t.any || slices.ContainsFunc(t.list, func(tag string) bool { return strings.TrimPrefix(tag, "W/") == current })
}

// expected returns the revision that If-Match names, 0 for "whatever there is".
// A tag that is not one of ours, or a weak one, matches nothing (RFC 9110
// §13.1.1), so it is a 412. Several tags are more than a client here can need.
func expected(header http.Header) (revision uint64, err error) {
	t := readTags(header, "If-Match")
	switch {
	case !t.given, t.any && len(t.list) == 0:
		return 0, nil
	case t.any || len(t.list) != 1:
		return 0, problem.New(http.StatusBadRequest, "If-Match takes one entity tag here, or *.", nil)
	}
	revision, err = strconv.ParseUint(strings.Trim(t.list[0], `"`), 10, 64)
	if err == nil && revision > 0 && t.list[0] == tag(revision) { // the strong comparison
		return revision, nil
	}
	return 0, preconditionFailed(nil)
}

// required is expected for changes that must not be made blindly (RFC 6585 §3).
func required(header http.Header) (revision uint64, err error) {
	if !readTags(header, "If-Match").given {
		return 0, problem.New(http.StatusPreconditionRequired,
			"This change needs If-Match with the ETag of the client as you read it, so that no change of somebody else is lost; * is whatever there is.", nil)
	}
	return expected(header)
}

func preconditionFailed(err error) error {
	return problem.New(http.StatusPreconditionFailed, "The client was changed meanwhile: read it again.", err)
}
